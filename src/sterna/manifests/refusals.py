"""What is said of a manifest that cannot be taken: the file, the line, the field, what was found, what is allowed.

One sentence for the first mistake; the library's own messages name its types and are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sterna.errors import UserError
from sterna.kinds.parsing.documents import Document, Place

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
    "model_attributes_type": "a mapping of names to values",
    "too_short": "a list that is not empty",
    "string_too_short": "text that is not empty",
}
_LONGEST_SHOWN = 40


def refusal(error: ValidationError, document: Document) -> UserError:
    """The first mistake, worded."""
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    place: Place = tuple(part for part in first["loc"] if part != "[key]")
    if kind == "unknown_name":
        key = context["name"]
        what = f"{dotted(place) or 'the manifest'} has no field '{key}'; {context['hint']}"
        return UserError(f"{document.where((*place, key))}: {what}")
    if kind == "missing":
        return UserError(f"{document.where(place)}: {dotted(place)} is missing; add it.")
    if kind == "sentence":
        prefix = f"{dotted(place)}: " if place else ""
        return UserError(f"{document.where((*place, *context['at']))}: {prefix}{context['what']}")
    found = first["input"]
    wanted = _wanted(kind, context) or first["msg"]
    if kind == "string_type" and isinstance(found, int | float):
        wanted = "text; put quotes around it"
    return UserError(f"{document.where(place)}: {dotted(place)}: expected {wanted}, found {shown(found)}.")


def dotted(place: Place) -> str:
    """`spec.containers[0].command`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def shown(value: object) -> str:
    """A value as its writer would know it again, cut if it is long."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text[:_LONGEST_SHOWN]}{'..' if len(text) > _LONGEST_SHOWN else ''}'"


def _wanted(kind: str, context: Mapping[str, Any]) -> str:
    if kind == "expected":
        return str(context["what"])
    if kind in ("greater_than_equal", "greater_than"):
        bound = context.get("ge", context.get("gt"))
        return f"{'at least' if kind == 'greater_than_equal' else 'more than'} {bound}"
    if kind in ("less_than_equal", "less_than"):
        bound = context.get("le", context.get("lt"))
        return f"{'at most' if kind == 'less_than_equal' else 'less than'} {bound}"
    if kind in ("literal_error", "enum"):
        return f"one of {context['expected']}".replace("'", "")
    return _WANTED.get(kind, "")
