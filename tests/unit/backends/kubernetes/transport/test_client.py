"""The real client on a server in memory, over loopback: watches, writes, and error handling."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import (
    Delta,
    DeltaKind,
    Followed,
    Inbox,
    Urgency,
    Verb,
    Write,
    WriteResult,
)
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import Access
from sterna.errors import Bug, Retry
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from tests.fakes.kube import FakeKube
from tests.fakes.kube_http import HttpKube
from tests.fakes.kube_requests import Response
from tests.fakes.kube_store import Refused, encoded, status_of

PATIENCE_SECONDS = 20.0


def a_pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def creation(name: str, **more: Any) -> Write:
    return Write(Verb.CREATE, PODS, "default", name, json.dumps(a_pod(name)).encode(), **more)


class Operator:
    """A client, its inbox, and everything that came so far."""

    def __init__(self, client: Client, *followed: Followed) -> None:
        self.client, self.inbox = client, Inbox()
        self.came: list[Delta | WriteResult] = []
        client.follow(followed, self.inbox)

    def until(self, fact: Callable[[], bool]) -> None:
        for _ in range(1000):
            self.came += self.inbox.take()
            if fact():
                return
            assert self.inbox.wait(PATIENCE_SECONDS), f"nothing more came after {self.came}"
        raise AssertionError("much came, but not that")

    def answers(self, count: int) -> list[WriteResult]:
        self.until(lambda: sum(isinstance(each, WriteResult) for each in self.came) >= count)
        return [each for each in self.came if isinstance(each, WriteResult)]

    def saw(self, change: DeltaKind, name: str = "", **facts: str) -> Callable[[], bool]:
        def seen(each: Delta | WriteResult) -> bool:
            if not isinstance(each, Delta) or each.change is not change:
                return False
            return not name or each.object.metadata.name == name

        return lambda: any(seen(each) for each in self.came)


@pytest.fixture
def http() -> Iterator[HttpKube]:
    with HttpKube(FakeKube()) as server:
        yield server


@pytest.fixture
def operator(http: HttpKube) -> Iterator[Callable[..., Operator]]:
    with ExitStack() as stack:

        def made(*followed: Followed, **options: Any) -> Operator:
            client = Client(Access(http.server), **options)
            stack.callback(client.close)
            return Operator(client, *(followed or [Followed(PODS, Pod)]))

        yield made


def test_listed_and_watched_objects_are_delivered(http: HttpKube, operator: Callable[..., Operator]) -> None:
    http.do(lambda kube: kube.create(PODS, a_pod("old")))
    it = operator()
    it.until(it.saw(DeltaKind.SYNCED))
    http.do(lambda kube: kube.create(PODS, a_pod("new")))
    it.until(it.saw(DeltaKind.SEEN, "new"))
    http.do(lambda kube: kube.delete(PODS, "old"))
    it.until(it.saw(DeltaKind.GONE, "old"))


def test_written_object_is_delivered_once_before_the_write_result(
    http: HttpKube, operator: Callable[..., Operator]
) -> None:
    it = operator()
    it.until(it.saw(DeltaKind.SYNCED))
    it.client.send([creation("p", tag="mine")])
    [answer] = it.answers(1)
    assert (answer.status, answer.write.tag) == (201, "mine")
    http.do(lambda kube: kube.create(PODS, a_pod("after")))
    it.until(it.saw(DeltaKind.SEEN, "after"))
    order = [each.object.metadata.name if isinstance(each, Delta) else "answer" for each in it.came[1:]]
    assert order == ["p", "answer", "after"]


def test_a_thousand_writes_are_each_answered_once(operator: Callable[..., Operator]) -> None:
    it = operator()
    it.client.send([creation(f"p-{index}") for index in range(1000)])
    answers = it.answers(1000)
    assert {answer.status for answer in answers} == {201}
    assert sorted(answer.write.name for answer in answers) == sorted(f"p-{index}" for index in range(1000))


def test_every_write_names_its_field_manager(http: HttpKube, operator: Callable[..., Operator]) -> None:
    queries: list[str] = []
    handle = http.kube.rest.handle

    def noted(method: str, path: str, query: str = "", body: bytes = b"", content_type: str = "") -> Response:
        queries.append(f"{method} {query}")
        return handle(method, path, query, body, content_type)

    http.kube.rest.handle = noted  # type: ignore[method-assign]
    it = operator()
    it.client.send(
        [creation("p"), Write(Verb.MERGE, PODS, "default", "q", b"{}"), Write(Verb.DELETE, PODS, "default", "r")]
    )
    it.answers(3)
    written_by = "fieldManager=sterna&fieldValidation=Ignore"
    assert sorted(query for query in queries if query[:3] != "GET") == [
        "DELETE ",
        f"PATCH {written_by}",
        f"POST {written_by}",
    ]


def test_of_a_slot_only_the_latest_is_sent_and_all_are_answered(operator: Callable[..., Operator]) -> None:
    it = operator()
    it.client.send([creation("p")])
    it.answers(1)

    def label(value: int) -> Write:
        body = json.dumps({"metadata": {"labels": {"v": str(value)}}}).encode()
        return Write(Verb.MERGE, PODS, "default", "p", body, urgency=Urgency.STATUS, slot="p", tag=value)

    it.client.send([label(value) for value in range(50)])
    answers = it.answers(51)[1:]
    sent = [answer.write.tag for answer in answers if answer.is_done]
    assert sent[-1] == 49
    assert len(sent) <= 2
    assert {answer.reason for answer in answers if not answer.is_done} == {"Superseded"}


def test_replica_that_does_not_lead_sends_no_write(http: HttpKube, operator: Callable[..., Operator]) -> None:
    it = operator(may_write=lambda: False)
    it.client.send([creation("p")])
    [answer] = it.answers(1)
    assert (answer.status, answer.reason) == (403, "NotLeader")
    assert http.do(lambda kube: kube.items(PODS)) == []


@pytest.mark.parametrize(
    ("status", "answered", "tries"),
    [
        pytest.param(429, 201, 3, id="too busy: again"),
        pytest.param(503, 201, 3, id="about to stop: again"),
        pytest.param(500, 0, 1, id="unknown: not again"),
        pytest.param(504, 0, 1, id="timed out: not again"),
        pytest.param(422, 422, 1, id="refused: not again"),
    ],
)
def test_a_write_is_repeated_only_where_it_surely_was_not_done(
    http: HttpKube, operator: Callable[..., Operator], status: int, answered: int, tries: int
) -> None:
    refusals = [Response(status, encoded(status_of(Refused(status, "Odd", "it is odd"))))] * 2
    http.answer_instead = lambda method, path: refusals.pop() if method == "POST" and refusals else None
    it = operator()
    it.client.send([creation("p")])
    [answer] = it.answers(1)
    assert answer.status == answered
    assert sum(method == "POST" for method, _ in http.requests) == tries
    assert answer.message == ("it is odd" if tries == 1 else "")


@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.DELETE])
def test_a_write_whose_answer_is_lost_is_not_repeated(
    http: HttpKube, operator: Callable[..., Operator], verb: Verb
) -> None:
    it = operator()
    if verb is Verb.DELETE:
        http.do(lambda kube: kube.create(PODS, a_pod("p")))
    http.cut_after = lambda method, path: method in ("POST", "DELETE")
    it.client.send([creation("p") if verb is Verb.CREATE else Write(verb, PODS, "default", "p")])
    [answer] = it.answers(1)
    assert answer.status == 0
    assert sum(method in ("POST", "DELETE") for method, _ in http.requests) == 1
    it.until(it.saw(DeltaKind.SEEN if verb is Verb.CREATE else DeltaKind.GONE, "p"))


def test_any_end_of_a_watch_means_watching_on(http: HttpKube, operator: Callable[..., Operator]) -> None:
    it = operator()
    it.until(it.saw(DeltaKind.SYNCED))
    for index, last in enumerate([None, Refused(410, "Expired", "too old"), Refused(500, "InternalError", "odd")]):
        http.end_watches(last)
        http.do(lambda kube, name=f"p-{index}": kube.create(PODS, a_pod(name)))  # type: ignore[misc]
        it.until(it.saw(DeltaKind.SEEN, f"p-{index}"))


def test_object_deleted_before_compaction_is_gone(http: HttpKube, operator: Callable[..., Operator]) -> None:
    http.do(lambda kube: kube.create(PODS, a_pod("p")))
    it = operator()
    it.until(it.saw(DeltaKind.SYNCED))

    def forget(kube: FakeKube) -> None:
        listeners, kube.store.listeners = kube.store.listeners, []
        kube.delete(PODS, "p")
        kube.create(PODS, a_pod("q"))
        kube.store.compact()
        kube.store.listeners = listeners

    http.do(forget)
    http.end_watches()
    it.until(it.saw(DeltaKind.GONE, "p"))
    it.until(it.saw(DeltaKind.SEEN, "q"))


def test_a_kind_that_is_not_installed_is_found_when_it_is(http: HttpKube, operator: Callable[..., Operator]) -> None:
    http.do(lambda kube: kube.rest.withdraw(TF_JOBS))
    it = operator(Followed(PODS, Pod), Followed(TF_JOBS, JobObject, is_optional=True))
    it.until(it.saw(DeltaKind.ABSENT))
    [absent] = [each for each in it.came if isinstance(each, Delta) and each.change is DeltaKind.ABSENT]
    assert "does not know tfjobs.kubeflow.org" in absent.why
    http.do(lambda kube: kube.rest.serve(TF_JOBS))
    http.do(lambda kube: kube.create(TF_JOBS, {"metadata": {"name": "job"}, "spec": {"x": 1}}))
    it.until(it.saw(DeltaKind.SEEN, "job"))


def test_forbidden_resource_is_listed_once_it_is_permitted(http: HttpKube, operator: Callable[..., Operator]) -> None:
    http.do(lambda kube: setattr(kube.rest, "forbidden", lambda seen: True))
    it = operator()
    it.until(it.saw(DeltaKind.ABSENT))
    http.do(lambda kube: setattr(kube.rest, "forbidden", lambda seen: False))
    it.until(it.saw(DeltaKind.SYNCED))


def test_any_thread_may_ask(http: HttpKube, operator: Callable[..., Operator]) -> None:
    it = operator()
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(it.client.ask("GET", "/api/v1/nodes/none").status))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert found == [404] * 4


def test_an_answer_to_ask_carries_the_refusal(operator: Callable[..., Operator]) -> None:
    answer = operator().client.ask("GET", "/api/v1/nodes/none")
    assert (answer.status, answer.reason, answer.is_done) == (404, "NotFound", False)
    assert '"none" not found' in answer.message


def test_unreachable_server_is_named_in_a_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        client = Client(Access(address))
        try:
            with pytest.raises(Retry, match=f"The API server at {address} cannot be reached .*check that it runs"):
                client.ask("GET", "/version")
            assert "cannot be reached" in client.last_error
        finally:
            client.close()


def test_outage_is_reported_until_the_server_is_back() -> None:
    kube = FakeKube()
    with HttpKube(kube) as http:
        port = int(http.server.rpartition(":")[2])
        it = Operator(Client(Access(http.server)), Followed(PODS, Pod))
        it.until(it.saw(DeltaKind.SYNCED))
    try:
        it.until(lambda: "cannot be reached" in it.client.last_error)  # now all connections are known to be closed
        it.client.send([creation("p")])
        with HttpKube(kube, port) as http:
            [answer] = it.answers(1)
            assert answer.status == 201
            assert it.client.last_error == ""
    finally:
        it.client.close()


def test_server_that_is_no_api_server_is_named_in_a_sentence(http: HttpKube, operator: Callable[..., Operator]) -> None:
    http.answer_instead = lambda method, path: Response(200, b"<html>hello</html>")
    it = operator()
    it.until(lambda: "is no API server" in it.client.last_error)


def test_answers_need_an_inbox(http: HttpKube) -> None:
    client = Client(Access(http.server))
    with pytest.raises(Bug):
        client.send([creation("p")])
    client.close()


def test_closed_client_leaves_no_thread_and_rejects_requests(http: HttpKube) -> None:
    before = set(threading.enumerate())
    client = Client(Access(http.server))
    Operator(client, Followed(PODS, Pod))
    client.close()
    client.close()
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()
    with pytest.raises(Retry, match="closed"):
        client.ask("GET", "/version")
