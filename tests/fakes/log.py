"""Log messages of Sterna, collected for tests as `configure_logging` would pass them on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sterna.logs import RepeatFilter


class _Collector(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self._messages = messages
        self.addFilter(RepeatFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


@contextmanager
def log_messages(level: int = logging.INFO) -> Iterator[list[str]]:
    """Collect the messages of all of Sterna's loggers, repetitions left out."""
    logger, messages = logging.getLogger("sterna"), list[str]()
    handler, before = _Collector(messages), logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
