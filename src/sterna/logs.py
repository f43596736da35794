"""Logging configuration of the long-running commands: `sterna up`, `sterna operator`, `sterna monitor`.

Modules log with `logging.getLogger(__name__)` and pass what a message is about as fields, for example
`extra={"job": name, "round": number}`. This module alone decides where messages go and what they look like. Libraries
that Sterna uses log warnings and errors through the same handler.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from sterna.control.repeat_limit import RepeatLimit
from sterna.errors import UserError, did_you_mean

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
FIELDS = ("job", "round", "node")
"""Attributes of a log record, set by `extra=`, that name what the message is about."""


def configure_logging(level: str, format: str, stream: TextIO | None = None) -> None:
    """Send messages of `level` and above to `stream` (default: stderr); replaces an earlier configuration."""
    for flag, chosen, known in (("--log-level", level, LEVELS), ("--log-format", format, FORMATS)):
        if chosen not in known:
            raise UserError(f"{flag} {chosen}: there is no such choice: {did_you_mean(chosen, known)}")
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    handler.addFilter(RepeatFilter())
    logging.raiseExceptions = False  # a closed stderr must not end a round
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("sterna").setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """One line: time, level, logger, message, fields; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, fields, and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class RepeatFilter(logging.Filter):
    """Drops a warning or error that was logged within the last minute with the same text."""

    def __init__(self, limit: RepeatLimit | None = None) -> None:
        super().__init__()
        self._limit = limit if limit is not None else RepeatLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        return self._limit.admits(f"{record.name} {record.getMessage()} {_fields(record)}")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
