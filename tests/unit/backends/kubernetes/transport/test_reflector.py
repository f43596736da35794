"""Deltas of one resource: in order, never stale, none lost over a relist, and no deleted object returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import Delta, DeltaKind, Followed
from sterna.backends.kubernetes.transport.reflector import Reflector
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS

Object = dict[str, Any]


def a_pod(name: str, version: int, uid: str = "", labels: dict[str, str] | None = None, **status: Any) -> Object:
    meta = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta | {"labels": labels or {}}, "spec": {}, "status": status}


def a_page(version: int, *pods: Object, token: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": str(version), "continue": token}, "items": pods}).encode()


def an_event(kind: str, each: Object) -> bytes:
    return json.dumps({"type": kind, "object": each}).encode() + b"\n"


def encode(each: Object) -> bytes:
    return json.dumps(each).encode()


def lines(deltas: list[Delta]) -> list[str]:
    """As `+name@version`, `-name@version`, `synced`, `absent`."""
    words = {DeltaKind.SYNCED: "synced", DeltaKind.ABSENT: "absent"}
    return [
        words.get(each.change)
        or f"{'+' if each.change is DeltaKind.SEEN else '-'}{each.object.metadata.name}@{each.object.metadata.version}"
        for each in deltas
    ]


@pytest.fixture
def pods() -> Reflector:
    return Reflector(Followed(PODS, Pod), page_size=2)


@pytest.fixture
def reflector(pods: Reflector) -> Reflector:
    """Pods a@5 and b@6, listed at 10."""
    pods.take_page(a_page(10, a_pod("a", 5), a_pod("b", 6)))
    return pods


def test_a_list_comes_in_pages_and_is_followed_by_a_watch(pods: Reflector) -> None:
    assert pods.request() == ("/api/v1/pods", "limit=2", False)
    assert lines(pods.take_page(a_page(10, a_pod("a", 5), a_pod("b", 6), token="to/c"))) == ["+a@5", "+b@6"]
    assert pods.request().query == "limit=2&continue=to%2Fc"
    assert lines(pods.take_page(a_page(10, a_pod("c", 7)))) == ["+c@7", "synced"]
    query = "watch=1&resourceVersion=10&allowWatchBookmarks=true&timeoutSeconds=60"
    assert pods.request(60) == ("/api/v1/pods", query, True)


def test_selectors_and_namespace_are_asked_for() -> None:
    followed = Followed(PODS, Pod, namespace="team", labels="sterna.dev/job,a!=b", fields="spec.nodeName=n")
    request = Reflector(followed, page_size=5).request()
    assert request.path == "/api/v1/namespaces/team/pods"
    assert request.query == "labelSelector=sterna.dev%2Fjob%2Ca%21%3Db&fieldSelector=spec.nodeName%3Dn&limit=5"


def test_events_yield_deltas_and_move_the_position(reflector: Reflector) -> None:
    stream = (
        an_event("ADDED", a_pod("c", 11)) + an_event("MODIFIED", a_pod("a", 12)) + an_event("DELETED", a_pod("b", 13))
    )
    assert lines(reflector.take_events(stream)) == ["+c@11", "+a@12", "-b@13"]
    assert "resourceVersion=13" in reflector.request().query


def test_a_stream_may_be_cut_anywhere(reflector: Reflector) -> None:
    stream = an_event("ADDED", a_pod("c", 11)) + an_event("MODIFIED", a_pod("a", 12))
    found = [word for at in range(len(stream)) for word in lines(reflector.take_events(stream[at : at + 1]))]
    assert found == ["+c@11", "+a@12"]


def test_half_a_line_of_a_watch_that_broke_off_does_not_spoil_the_next(reflector: Reflector) -> None:
    reflector.take_events(an_event("ADDED", a_pod("c", 11))[:20])
    reflector.note_watch_open()
    assert lines(reflector.take_events(an_event("ADDED", a_pod("c", 11)))) == ["+c@11"]


def test_bookmark_moves_the_position_without_a_delta(reflector: Reflector) -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "40"}}
    assert reflector.take_events(an_event("BOOKMARK", bookmark)) == []
    assert "resourceVersion=40" in reflector.request().query


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(an_event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}), id="410 as an event"),
        pytest.param(an_event("ERROR", {"kind": "Status", "code": 500}), id="another error"),
        pytest.param(b"<html>\n", id="no JSON"),
        pytest.param(b'{"type": "ADDED"}\n', id="half an event"),
    ],
)
def test_an_error_in_a_watch_means_listing_again(reflector: Reflector, line: bytes) -> None:
    stream = an_event("MODIFIED", a_pod("a", 11)) + line + an_event("MODIFIED", a_pod("a", 12))
    assert lines(reflector.take_events(stream)) == ["+a@11"]
    assert reflector.wants_list
    assert reflector.request().query == "limit=2"


@pytest.mark.parametrize("status", [410, 504, 400])
def test_a_watch_from_a_version_that_is_gone_means_listing_again(reflector: Reflector, status: int) -> None:
    assert reflector.note_rejected(status, b"") == []
    assert reflector.wants_list


@pytest.mark.parametrize("status", [500, 429, 503])
def test_a_busy_server_is_asked_for_the_same_watch_again(reflector: Reflector, status: int) -> None:
    assert reflector.note_rejected(status, b"") == []
    assert "resourceVersion=10" in reflector.request().query


def test_relist_delivers_the_difference(reflector: Reflector) -> None:
    reflector.list_again()
    assert lines(reflector.take_page(a_page(30, a_pod("b", 20), a_pod("c", 25)))) == [
        "+b@20",
        "+c@25",
        "-a@5",
        "synced",
    ]


def test_object_deleted_unseen_is_gone_with_name_and_uid(reflector: Reflector) -> None:
    reflector.list_again()
    [gone, _, _] = reflector.take_page(a_page(30))
    meta = gone.object.metadata
    assert isinstance(gone.object, Pod)
    assert (meta.namespace, meta.name, meta.uid, meta.version) == ("default", "a", "uid-a", 5)


def test_deleted_object_is_delivered_in_its_last_version(reflector: Reflector) -> None:
    [gone] = reflector.take_events(an_event("DELETED", a_pod("a", 11, phase="Succeeded")))
    assert gone.object.status.phase == "Succeeded"


def test_a_list_that_expires_on_the_way_starts_over(reflector: Reflector) -> None:
    reflector.list_again()
    reflector.take_page(a_page(20, a_pod("a", 5), token="more"))
    reflector.note_rejected(410, b"")
    assert reflector.request().query == "limit=2"
    assert lines(reflector.take_page(a_page(30, a_pod("b", 6)))) == ["-a@5", "synced"]


def test_no_version_is_delivered_twice_or_after_a_newer_one(reflector: Reflector) -> None:
    stream = an_event("MODIFIED", a_pod("a", 12)) * 2 + an_event("MODIFIED", a_pod("a", 11))
    assert lines(reflector.take_events(stream)) == ["+a@12"]


def test_object_that_takes_over_a_name_is_preceded_by_gone(reflector: Reflector) -> None:
    reflector.list_again()
    deltas = reflector.take_page(a_page(30, a_pod("a", 25, uid="second"), a_pod("b", 6)))
    assert lines(deltas) == ["-a@5", "+a@25", "synced"]
    assert [each.object.metadata.uid for each in deltas[:2]] == ["uid-a", "second"]


# What we wrote.


def test_written_object_is_delivered_at_once_and_its_echo_dropped(reflector: Reflector) -> None:
    assert lines(reflector.note_written(encode(a_pod("c", 15)))) == ["+c@15"]
    assert lines(reflector.take_events(an_event("ADDED", a_pod("c", 15)))) == []
    assert lines(reflector.take_events(an_event("MODIFIED", a_pod("c", 16)))) == ["+c@16"]


def test_event_older_than_our_write_is_dropped(reflector: Reflector) -> None:
    reflector.note_written(encode(a_pod("a", 15)))
    assert lines(reflector.take_events(an_event("MODIFIED", a_pod("a", 14)))) == []


def test_written_object_survives_an_older_list(reflector: Reflector) -> None:
    reflector.note_written(encode(a_pod("c", 15)))
    reflector.list_again()
    assert lines(reflector.take_page(a_page(14, a_pod("a", 5), a_pod("b", 6)))) == ["synced"]
    assert lines(reflector.take_events(an_event("DELETED", a_pod("c", 16)))) == ["-c@16"]


def test_object_written_between_pages_survives(reflector: Reflector) -> None:
    reflector.list_again()
    reflector.take_page(a_page(20, a_pod("a", 5), token="more"))
    assert lines(reflector.note_written(encode(a_pod("c", 21)))) == ["+c@21"]
    assert lines(reflector.note_written(encode(a_pod("d", 19)))) == []
    assert lines(reflector.take_page(a_page(20, a_pod("b", 6), a_pod("d", 19)))) == ["+d@19", "synced"]


def test_written_object_missing_from_a_newer_list_is_gone(reflector: Reflector) -> None:
    reflector.note_written(encode(a_pod("c", 15)))
    reflector.list_again()
    assert lines(reflector.take_page(a_page(16, a_pod("a", 5), a_pod("b", 6)))) == ["-c@15", "synced"]


def test_an_answer_that_the_watch_overtook_brings_nothing_back(reflector: Reflector) -> None:
    reflector.take_events(an_event("ADDED", a_pod("c", 15)) + an_event("DELETED", a_pod("c", 17)))
    assert reflector.note_written(encode(a_pod("c", 16))) == []


def test_the_end_of_a_predecessor_is_not_ours_to_mourn(reflector: Reflector) -> None:
    reflector.note_written(encode(a_pod("a", 20, uid="second")))
    assert lines(reflector.take_events(an_event("DELETED", a_pod("a", 12)))) == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"kind":"Status","metadata":{},"status":"Success"}', id="a status"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="no object"),
    ],
)
@pytest.mark.parametrize("followed", [Followed(PODS, Pod), Followed(TF_JOBS, JobObject)], ids=["pods", "jobs"])
def test_reply_without_an_object_yields_no_delta(followed: Followed, body: bytes) -> None:
    assert Reflector(followed).note_written(body) == []


@pytest.mark.parametrize(
    ("followed", "is_told"),
    [
        pytest.param(Followed(PODS, Pod, labels="job=x"), True, id="selected"),
        pytest.param(Followed(PODS, Pod, labels="job!=x"), False, id="not selected"),
        pytest.param(Followed(PODS, Pod, namespace="default"), True, id="in the namespace"),
        pytest.param(Followed(PODS, Pod, namespace="team"), False, id="in another namespace"),
        pytest.param(Followed(PODS, Pod, fields="spec.nodeName=n"), False, id="fields are the server's to judge"),
    ],
)
def test_written_object_is_delivered_only_if_it_is_watched(followed: Followed, is_told: bool) -> None:
    assert bool(Reflector(followed).note_written(encode(a_pod("c", 15, labels={"job": "x"})))) is is_told


# Trouble.


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "does not accept our credentials"),
        (403, "Sterna may not see pods (no way); grant"),
        (404, "does not know pods; install"),
    ],
)
def test_forbidden_resource_is_absent_with_one_sentence(reflector: Reflector, status: int, expected: str) -> None:
    refusal = json.dumps({"kind": "Status", "message": "no way"}).encode()
    [absent] = reflector.note_rejected(status, refusal)
    assert absent.change is DeltaKind.ABSENT
    assert expected in absent.why
    assert reflector.note_rejected(status, refusal) == []


def test_absent_resource_is_synced_again_without_gone(reflector: Reflector) -> None:
    reflector.note_rejected(404, b"")
    assert lines(reflector.take_page(a_page(30, a_pod("a", 5)))) == ["-b@6", "synced"]
    reflector.note_rejected(403, b"")
    assert lines(reflector.note_watch_open()) == ["synced"]
    assert lines(reflector.note_watch_open()) == []


def test_one_object_that_cannot_be_read_does_not_hide_the_others(pods: Reflector) -> None:
    broken = a_pod("b", 6) | {"spec": {"nodeName": 7}}
    assert lines(pods.take_page(a_page(10, a_pod("a", 5), broken, a_pod("c", 7)))) == ["+a@5", "+c@7", "synced"]
    stream = an_event("MODIFIED", broken) + an_event("ADDED", a_pod("d", 11))
    assert lines(pods.take_events(stream)) == ["+d@11"]


def test_a_store_put_back_from_a_backup_is_believed(reflector: Reflector) -> None:
    reflector.list_again()
    assert lines(reflector.take_page(a_page(4, a_pod("a", 3)))) == ["+a@3", "-b@0", "synced"]
    assert lines(reflector.take_events(an_event("MODIFIED", a_pod("a", 5)))) == ["+a@5"]


def test_undecoded_fields_do_not_keep_their_page_in_memory() -> None:
    jobs = Reflector(Followed(TF_JOBS, JobObject))
    meta = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "5"}
    body = a_page(10, {"metadata": meta, "spec": {"x": 1}, "status": None})
    [seen, _] = jobs.take_page(body)
    assert bytes(seen.object.spec) == b'{"x": 1}'
    assert bytes(seen.object.status) == b"null"
    assert memoryview(seen.object.spec).obj is not body
