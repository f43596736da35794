"""Learned curves outlive the operator in a ConfigMap that only a leader writes, rarely, never over malformed data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.api.rbac import LEARNED_CURVES
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.learned_store import MAX_BYTES, LearnedStore, decode_curves, encode_curves
from sterna.errors import UserError
from sterna.model.learned import CategoryRecord, Pace
from tests.fakes.kube import FakeKube

LONG_AGO = CategoryRecord("bert", (Pace(1, 100.0, 50.0),), 2, 30.0)


class Replica:
    """Learned knowledge of an operator and its store; a leader by default."""

    def __init__(self, kube: FakeKube, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog
        self.kube, self.progress = kube, Progress()
        self.is_leading = True
        server = kube.client()
        self.kept = LearnedStore(server, "default", self.progress, lambda: self.is_leading)

    @property
    def messages(self) -> list[str]:
        return list(dict.fromkeys(self.caplog.messages))

    def learn(self, category: str = "resnet", steps: float = 10.0) -> None:
        self.progress.learned_curves.add_steps(category, 1, steps, 2 * steps)

    def knows(self) -> dict[str, float]:
        return {record.category: record.steps for record in self.progress.learned_curves.by_age}


@pytest.fixture
def replica(caplog: pytest.LogCaptureFixture) -> Replica:
    return Replica(FakeKube(), caplog)


def text_in(kube: FakeKube) -> str:
    found: dict[str, Any] = kube.get(CONFIG_MAPS, LEARNED_CURVES)
    text: str = found["data"]["curves.json"]
    return text


def put(kube: FakeKube, text: str) -> None:
    kube.create(CONFIG_MAPS, {"metadata": {"name": LEARNED_CURVES}, "data": {"curves.json": text}})


def test_a_successor_begins_with_what_its_predecessor_learned(replica: Replica) -> None:
    replica.learn()
    assert replica.kept.save_if_due(0.0)
    successor = Replica(replica.kube, replica.caplog)
    assert successor.kept.load()
    assert successor.knows() == {"resnet": 10.0}
    assert successor.progress.learned_curves.step_seconds("resnet") == pytest.approx(2.0, rel=0.1)
    assert not successor.kept.save_if_due(0.0), "nothing was learned since"


def test_nothing_is_written_before_something_was_learned(replica: Replica) -> None:
    assert not replica.kept.save_if_due(0.0)
    assert replica.kube.find(CONFIG_MAPS, LEARNED_CURVES) is None


def test_it_is_written_at_most_once_a_minute_and_at_the_end(replica: Replica) -> None:
    written = []
    for second in range(0, 200, 5):
        replica.learn()
        if replica.kept.save_if_due(float(second)):
            written.append(second)
    assert written == [0, 60, 120, 180]
    assert decode_curves(text_in(replica.kube))[0].steps == 370.0
    replica.kept.save()
    assert decode_curves(text_in(replica.kube))[0].steps == 400.0


def test_only_a_leader_writes(replica: Replica) -> None:
    replica.is_leading = False
    replica.learn()
    replica.kept.save_if_due(0.0)
    assert replica.kube.find(CONFIG_MAPS, LEARNED_CURVES) is None
    replica.is_leading = True
    assert replica.kept.save_if_due(100.0)
    assert decode_curves(text_in(replica.kube))[0].category == "resnet"


def test_one_that_was_fenced_out_changes_nothing(replica: Replica) -> None:
    replica.kube.fence = ("default", "sterna")
    for second in (0.0, 60.0, 120.0):
        replica.learn()
        replica.kept.save_if_due(second)
    assert replica.kube.find(CONFIG_MAPS, LEARNED_CURVES) is None
    assert replica.messages == []


@pytest.mark.parametrize("ruin", ["{", "[1]", '{"a": 1}', '[{"category": 7}]', "[" * 5000])
def test_a_malformed_config_map_is_logged_once_and_left_alone_until_deleted(replica: Replica, ruin: str) -> None:
    put(replica.kube, ruin)
    assert not replica.kept.load()
    for second in (0.0, 60.0):
        replica.learn()
        replica.kept.save_if_due(second)
    assert text_in(replica.kube) == ruin
    assert len(replica.messages) == 1
    assert "cannot be decoded" in replica.messages[0]
    assert "delete that ConfigMap" in replica.messages[0]
    replica.kube.delete(CONFIG_MAPS, LEARNED_CURVES)
    replica.learn()
    replica.kept.save_if_due(120.0)
    assert decode_curves(text_in(replica.kube))[0].steps == 30.0


def test_a_config_map_that_becomes_malformed_is_left_alone_until_it_is_corrected(replica: Replica) -> None:
    replica.learn()
    replica.kept.save_if_due(0.0)
    good = text_in(replica.kube)
    replica.kube.patch(CONFIG_MAPS, LEARNED_CURVES, {"data": {"curves.json": "?"}})
    replica.learn()
    replica.kept.save_if_due(60.0)
    assert text_in(replica.kube) == "?"
    replica.kube.patch(CONFIG_MAPS, LEARNED_CURVES, {"data": {"curves.json": good}})
    replica.kept.save_if_due(120.0)
    assert decode_curves(text_in(replica.kube))[0].steps == 20.0


def test_a_conflicting_change_of_another_client_does_not_stop_it(replica: Replica) -> None:
    replica.learn()
    replica.kept.save_if_due(0.0)
    replica.kube.patch(CONFIG_MAPS, LEARNED_CURVES, {"metadata": {"labels": {"mine": "yes"}}})
    replica.learn()
    replica.kept.save_if_due(60.0)
    replica.kube.delete(CONFIG_MAPS, LEARNED_CURVES)
    replica.learn()
    replica.kept.save_if_due(120.0)
    assert decode_curves(text_in(replica.kube))[0].steps == 30.0
    assert replica.messages == []


def test_a_server_that_refuses_is_asked_again_and_what_was_there_before_counts(replica: Replica) -> None:
    put(replica.kube, encode_curves([LONG_AGO]).document)
    replica.kube.rest.forbidden = lambda seen: seen.resource == CONFIG_MAPS
    assert not replica.kept.load()
    replica.learn()
    replica.learn("bert")
    replica.kept.save_if_due(0.0)
    replica.kube.rest.forbidden = lambda seen: False
    replica.kept.save_if_due(60.0)
    assert {each.category: each.steps for each in decode_curves(text_in(replica.kube))} == {
        "resnet": 10.0,
        "bert": 110.0,
    }
    assert len(replica.messages) == 1
    assert "cannot be stored in the ConfigMap default/sterna-learned-curves" in replica.messages[0]


# The document.


def test_categories_of_which_nothing_was_heard_for_longest_go_first(replica: Replica) -> None:
    replica.progress.recall([CategoryRecord(f"category-{number:04}", (Pace(1, 10.0, 20.0),)) for number in range(5000)])
    replica.learn("category-0000")
    replica.kept.save_if_due(0.0)
    text = text_in(replica.kube)
    kept = [record.category for record in decode_curves(text)]
    assert MAX_BYTES - 200 < len(text) <= MAX_BYTES
    assert kept[-2:] == ["category-4999", "category-0000"]
    assert kept[0] == f"category-{5001 - len(kept):04}"
    assert [each for each in replica.messages if "oldest categories are not stored" in each]


def test_curves_are_read_as_they_were_written() -> None:
    records = [LONG_AGO, CategoryRecord("resnet", (Pace(1, 5.0, 9.0), Pace(4, 3.0, 2.0)))]
    kept = encode_curves(records)
    assert (decode_curves(kept.document), kept.dropped) == (records, 0)


def test_impossible_measurements_are_left_out() -> None:
    odd = [
        {"category": "a", "paces": [{"workers": -1, "steps": 1.0, "seconds": 1.0}], "restarts": -3},
        {"category": "a" * 1000},
        {"category": "b", "paces": [{"workers": 10**9, "steps": 1.0, "seconds": 1.0}], "restartingSeconds": 1e300},
        {"category": "c", "paces": [{"workers": 1, "steps": 1e308, "seconds": -1.0}]},
    ]
    assert decode_curves(msgspec.json.encode(odd).decode()) == [
        CategoryRecord("a"),
        CategoryRecord("b"),
        CategoryRecord("c"),
    ]


def test_a_document_that_is_none_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"curves\.json"):
        decode_curves("{")
