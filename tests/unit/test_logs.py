"""Log configuration: formats, fields, levels, and the limit on repeated messages."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from sterna.control.repeat_limit import RepeatLimit
from sterna.errors import UserError
from sterna.logs import RepeatFilter, configure_logging


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("sterna")
    handlers, level, our_level, is_raising = root.handlers[:], root.level, ours.level, logging.raiseExceptions
    yield io.StringIO()
    root.handlers[:], logging.raiseExceptions = handlers, is_raising
    root.setLevel(level)
    ours.setLevel(our_level)


def fail() -> None:
    try:
        raise ValueError("it broke")
    except ValueError:
        logging.getLogger("sterna.test").exception("Round failed.", extra={"job": "default/a", "round": 7})


def test_text_line_has_time_level_logger_message_and_fields(stream: io.StringIO) -> None:
    configure_logging("info", "text", stream)
    logging.getLogger("sterna.test").info("Moved %d.", 2, extra={"job": "default/a", "node": "n-1"})
    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == "INFO sterna.test: Moved 2. job=default/a node=n-1\n"


def test_text_shows_the_traceback_of_an_exception(stream: io.StringIO) -> None:
    configure_logging("info", "text", stream)
    fail()
    assert stream.getvalue().endswith("ValueError: it broke\n")


def test_json_is_one_object_per_line(stream: io.StringIO) -> None:
    configure_logging("info", "json", stream)
    logging.getLogger("sterna.test").warning("two\nlines", extra={"round": 3})
    fail()
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time") <= second["time"]
    assert first == {"level": "warning", "logger": "sterna.test", "message": "two\nlines", "round": 3}
    assert (second["job"], second["round"]) == ("default/a", 7)
    assert "ValueError: it broke" in second["error"]


@pytest.mark.parametrize(("level", "messages"), [("debug", "diwe"), ("info", "iwe"), ("warning", "we"), ("error", "e")])
def test_level_leaves_out_less_severe_messages(stream: io.StringIO, level: str, messages: str) -> None:
    configure_logging(level, "text", stream)
    logger = logging.getLogger("sterna.test")
    for log, message in ((logger.debug, "d"), (logger.info, "i"), (logger.warning, "w"), (logger.error, "e")):
        log(message)
    assert [line[-1] for line in stream.getvalue().splitlines()] == list(messages)


def test_libraries_log_warnings_only(stream: io.StringIO) -> None:
    configure_logging("debug", "text", stream)
    logging.getLogger("asyncio").info("quiet")
    logging.getLogger("asyncio").warning("heard")
    assert "quiet" not in stream.getvalue()
    assert "heard" in stream.getvalue()


def test_repeated_warning_is_logged_once_per_minute_and_never_silenced_for_good() -> None:
    now = [0.0]
    repeats = RepeatFilter(RepeatLimit(60.0, lambda: now[0]))

    def passes(message: str, level: int = logging.WARNING) -> bool:
        return repeats.filter(logging.LogRecord("sterna", level, "", 0, message, (), None))

    assert [passes("a"), passes("a"), passes("b")] == [True, False, True]
    assert all(passes(f"error {number}") for number in range(1000))
    now[0] = 61.0
    assert passes("a")
    assert [passes("info", logging.INFO) for _ in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("level", "format", "flag"), [("loud", "text", "--log-level"), ("info", "xml", "--log-format")]
)
def test_unknown_choice_is_rejected(level: str, format: str, flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        configure_logging(level, format)
