"""Users' objects decoded, with a sentence for what cannot be.

Decoding checks the fields that decide something; all others are carried along as they are, because the API server
checks pods when they are made. What stands empty (`nodeSelector:`) counts as absent, as in Kubernetes.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from sterna.errors import UserError

T = TypeVar("T")

_MESSAGE = re.compile(r"(?:Expected (?P<wanted>.+?)(?:, got `(?P<found>.+?)`)?|(?P<other>.+?))(?: - at `(?P<at>.+)`)?$")
_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def decoded(data: Any, type_: type[T], place: str) -> T:
    """JSON, or what was made of it, as a value of that type; `place` is where it stands in the object."""
    try:
        try:
            return _read(data, type_)
        except msgspec.ValidationError:
            plain = msgspec.json.decode(data) if isinstance(data, bytes | msgspec.Raw) else data
            return msgspec.json.decode(msgspec.json.encode(without_nothings(plain)), type=type_)
    except msgspec.ValidationError as error:
        raise UserError(_sentence(str(error), place)) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError):
        raise UserError(f"{place} cannot be read; check what was submitted.") from None


def _read(data: Any, type_: type[T]) -> T:
    if isinstance(data, bytes | msgspec.Raw):
        return msgspec.json.decode(data, type=type_)
    return msgspec.convert(data, type_)


def without_nothings(value: Any) -> Any:
    """Without keys that have no value."""
    if isinstance(value, dict):
        return {key: without_nothings(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nothings(inner) for inner in value]
    return value


def _sentence(message: str, place: str) -> str:
    match = _MESSAGE.fullmatch(message)
    if match is None:
        return f"{place} cannot be read; check what was submitted."
    where = place + (match["at"] or "").removeprefix("$")
    if match["other"]:
        return f"{where}: {_missing(match['other']) or 'this cannot be read'}; check what was submitted."
    found = f", found {_TYPES.get(match['found'], match['found'])}" if match["found"] else ""
    return f"{where}: expected {_wanted(match['wanted'])}{found}."


def _missing(message: str) -> str:
    match = re.search(r"missing required field `(.+?)`", message)
    return f"'{match[1]}' is missing" if match else ""


def _wanted(text: str) -> str:
    """`int | null` as people say it."""
    names = [name.strip() for name in text.replace("`", "").split("|")]
    return " or ".join(_TYPES.get(name, name) for name in names if name != "null")
