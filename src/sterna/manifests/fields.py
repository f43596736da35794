"""What every part of a manifest shares: names that are known and no others, and values with units.

`Fields` refuses a name it does not know, with the nearest one; a name that Kubernetes knows and that has no meaning on
this machine is left out with a notice. Notices are collected in the context of a validation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from sterna.errors import did_you_mean

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
LONGEST_NAME = 63

_BYTES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BYTES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z]*)\s*", re.ASCII)
_MOST_UNITS = 1e6
"""Cores or devices of one replica; more is a slip of the keyboard."""
_MOST_BYTES = 2**60
_LONGEST = 1e10
"""Seconds; some three hundred years."""


class Fields(BaseModel):
    """One level of a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)

    meaningless: ClassVar[frozenset[str]] = frozenset()
    """Names that Kubernetes knows and that say nothing to us."""

    @model_validator(mode="before")
    @classmethod
    def _known_names_only(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, Mapping):
            return value
        known = _names(cls)
        kept: dict[str, Any] = {}
        for key, inner in value.items():
            if key in known:
                if inner is not None:  # nothing after the colon: as if it were not there
                    kept[key] = inner
            elif key in cls.meaningless:
                note(info, f"'{key}' has no meaning here and is left out.")
            else:
                raise PydanticCustomError(
                    "unknown_name", "{hint}", {"name": key, "hint": did_you_mean(str(key), known)}
                )
        return kept


@cache
def _names(level: type[Fields]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in level.model_fields.items())


def note(info: ValidationInfo, sentence: str) -> None:
    """Keep a notice, once."""
    notices: list[str] = info.context if isinstance(info.context, list) else []
    if sentence not in notices:
        notices.append(sentence)


def expected(what: str) -> PydanticCustomError:
    """A refusal that says what would have been right; what was found is added when it is worded."""
    return PydanticCustomError("expected", "{what}", {"what": what})


def sentence(what: str, *at: str) -> PydanticCustomError:
    """A refusal of fields that do not go together, worded in full; `at` leads to the line that is named."""
    return PydanticCustomError("sentence", "{what}", {"what": what, "at": at})


def thousandths(value: object) -> int:
    """CPU cores or devices, `2`, `0.5` or `500m`, rounded up to thousandths."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool) or match[2] not in ("", "m"):
        raise expected("a number such as 2, 0.5 or 500m")
    number = float(match[1]) / (1000 if match[2] else 1)
    if number > _MOST_UNITS:
        raise expected(f"at most {_MOST_UNITS:,.0f}")
    return math.ceil(round(number * 1000, 6))


def byte_count(value: object) -> int:
    """Memory, `8Gi`, `512Mi` or a number of bytes."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool) or match[2] not in _BYTES:
        raise expected("memory such as 8Gi, 512Mi or a number of bytes")
    number = float(match[1]) * _BYTES[match[2]]
    if number > _MOST_BYTES:
        raise expected("less memory than 1024Pi")
    return math.ceil(number)


def seconds(value: object) -> float:
    """A time, `30`, `30s`, `5m` or `2h`."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool) or match[2] not in _SECONDS:
        raise expected("seconds, or a time such as 30s, 5m or 2h")
    number = float(match[1]) * _SECONDS[match[2]]
    if number > _LONGEST:
        raise expected(f"at most {_LONGEST:.0e} seconds")
    return number


def job_name(value: object) -> str:
    """A name that is safe as the name of a folder, and that Kubernetes would take too."""
    if not isinstance(value, str):
        raise expected("a name, as text; put quotes around it")
    if len(value) > LONGEST_NAME or not NAME.fullmatch(value):
        raise expected(f"a name of at most {LONGEST_NAME} small letters, digits, '-' and '.', such as mnist-1")
    return value


Thousandths = Annotated[int, BeforeValidator(thousandths)]
ByteCount = Annotated[int, BeforeValidator(byte_count)]
Seconds = Annotated[float, BeforeValidator(seconds)]
JobName = Annotated[str, BeforeValidator(job_name)]


class Metadata(Fields):
    """What a manifest says about itself."""

    meaningless = frozenset(
        {"namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences", "finalizers"}
        | {"managedFields", "generateName", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}
    )

    name: JobName
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
