"""Server-sent events: everything once, then only what changed, and an end with the server."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes.http_server import Served

Next = Callable[[], tuple[str, Any]]


@contextmanager
def open_watch(api: Served, query: str = "") -> Iterator[Next]:
    connection = http.client.HTTPConnection(api.server.url.partition("://")[2], timeout=20)
    connection.request("GET", f"/api/v1/watch{query}")
    reply = connection.getresponse()
    assert reply.headers["content-type"].startswith("text/event-stream")

    def message() -> tuple[str, Any]:
        kind = ""
        while line := reply.readline():
            name, _, value = line.rstrip(b"\n").partition(b": ")
            if name == b"event":
                kind = value.decode()
            elif name == b"data":
                return kind, json.loads(value)
        return "end", None

    try:
        yield message
    finally:
        connection.close()


def test_a_watch_sends_the_full_state_once_and_then_changes(api: Served) -> None:
    api.create("a", "b")
    with open_watch(api) as message:
        first = dict(message() for _ in range(4))
        assert [job["name"] for job in first["jobs"]["changed"]] == ["a", "b"]
        assert len(first["nodes"]) == 2
        assert first["rules"]["policy"] == "elastic-fifo"
        assert [event["kind"] for event in first["events"]] == ["submitted", "submitted"]
        api.cluster.run("b", 1, 2)
        kind, news = message()
        assert kind == "jobs"
        assert [job["name"] for job in news["changed"]] == ["b"]
        assert message()[1][0]["kind"] == "started"


def test_a_watch_reports_deletions(api: Served) -> None:
    api.create("a", "b")
    with open_watch(api, "?kind=jobs") as message:
        message()
        api.cluster.delete(["a"])
        assert message() == ("jobs", {"changed": [], "gone": ["a"]})


def test_one_job_alone_may_be_watched(api: Served) -> None:
    api.create("a", "b")
    with open_watch(api, "?kind=jobs&kind=events&job=b") as message:
        assert [job["name"] for job in message()[1]["changed"]] == ["b"]
        assert [event["job"] for event in message()[1]] == ["b"]


def test_a_watch_starts_with_the_latest_events_only(api: Served) -> None:
    for number in range(250):
        api.cluster.record(f"number {number}", "note")
    with open_watch(api, "?kind=events") as message:
        _, events = message()
        assert (len(events), events[-1]["sentence"]) == (100, "number 249")


def test_watchers_end_with_the_server(api: Served) -> None:
    with open_watch(api, "?kind=jobs") as message:
        message()
        ending = threading.Thread(target=api.server.stop)
        ending.start()
        assert message()[0] == "end"
        ending.join(20)
        assert not ending.is_alive()
    assert not (api.state / "api.sock").exists()
