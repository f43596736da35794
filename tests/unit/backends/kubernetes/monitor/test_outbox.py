"""Reports queued for the operator: thinned, bounded, kept while it is away, and sent again to a new leader."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sterna.backends.kubernetes.api.monitor_protocol import MOST_BYTES, Batch
from sterna.backends.kubernetes.monitor.outbox import Outbox
from sterna.progress.report import SourceReport
from tests.unit.backends.kubernetes.cache.progress_builders import START, report


def report_progress(outbox: Outbox, *reports: SourceReport, uid: str = "u", is_first: bool = True) -> None:
    outbox.take(uid, "default", "pod", is_first, reports)


def send_batch(outbox: Outbox, at: float) -> list[int | None]:
    """Steps that go out now, and arrive."""
    batch = outbox.batch(START + at)
    outbox.confirm_batch()
    return steps(batch)


def steps(batch: Batch | None) -> list[int | None]:
    return [] if batch is None else [each.step for pod in batch.pods for each in pod.reports]


def test_of_a_young_pod_one_report_a_second_goes_out() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, *(report(step / 4, step) for step in range(12)))
    assert send_batch(outbox, 3.0) == [0, 4, 8]


def test_what_was_held_back_goes_out_when_nothing_follows_it() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, report(0, 1), report(0.5, 2, loss=0.5))
    assert send_batch(outbox, 0.5) == [1]
    assert not outbox.is_due(START + 0.9, START)
    assert outbox.is_due(START + 1.6, START)
    assert send_batch(outbox, 1.6) == [2]
    assert not outbox.is_due(START + 99, START)


def test_a_report_that_was_held_back_gives_its_numbers_to_the_next() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, report(0, 1), report(0.4, 2, 50, accuracy=0.9), report(1.1, None, loss=0.5))
    batch = outbox.batch(START + 2)
    assert batch is not None
    last = batch.pods[0].reports[-1]
    assert (last.step, last.total, last.metrics) == (2, 50, {"accuracy": 0.9, "loss": 0.5})


def test_an_old_pod_is_reported_every_ten_seconds() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, *(report(at, at) for at in range(0, 2000)))
    out = send_batch(outbox, 2000)
    late = [step for step in out if step is not None and step > 1000]
    assert {after - before for before, after in pairwise(late)} == {10}
    assert not outbox.is_due(START + 2001, START + 2000)


def test_other_pods_of_a_gang_are_reported_rarely() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, *(report(at, at) for at in range(30)), is_first=False)
    assert send_batch(outbox, 30) == [0, 10, 20]


@pytest.mark.parametrize(
    "urgent",
    [report(0.1, 5, saved=True), report(0.1, 9, 9)],
    ids=["a checkpoint", "the last step"],
)
def test_awaited_reports_are_sent_at_once(urgent: SourceReport) -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, report(0, 1), urgent)
    assert send_batch(outbox, 0.2) == [1, urgent.step]


def test_the_end_of_a_pod_lets_go_of_what_was_held_back() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, report(0, 1), report(0.3, 2))
    outbox.end("u", START + 0.4)
    outbox.end("unknown", START + 0.4)
    assert outbox.is_due(START + 1.0, START)
    assert send_batch(outbox, 1.0) == [1, 2]


def test_a_batch_that_did_not_arrive_is_sent_again() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, report(0, 1))
    assert steps(outbox.batch(START + 1)) == [1]
    report_progress(outbox, report(2, 2))
    assert steps(outbox.batch(START + 3)) == [1, 2]


def test_a_new_leader_receives_the_history_from_the_start() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, report(0, 1), report(1, 2))
    assert send_batch(outbox, 1) == [1, 2]
    report_progress(outbox, report(2, 3))
    assert steps(outbox.batch(START + 2)) == [3]
    outbox.resend_to("second")
    batch = outbox.batch(START + 2)
    assert batch is not None
    assert batch.memory == "second"
    assert steps(batch) == [1, 2, 3]


def test_history_is_thinned_while_the_operator_does_not_answer() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, *(report(10.0 * at, at) for at in range(5000)))
    kept = send_batch(outbox, 50_000)
    assert len(kept) <= 512
    assert (kept[0], kept[-1]) == (0, 4999)


def test_one_request_holds_no_more_than_it_may() -> None:
    outbox = Outbox("node-1")
    for pod in range(10):
        report_progress(outbox, *(report(10.0 * at, at) for at in range(500)), uid=f"u{pod}")
    sizes = []
    while outbox.has_news:
        sizes.append(len(send_batch(outbox, 10_000)))
    assert sum(sizes) == 5000
    assert max(sizes) * 400 <= MOST_BYTES


def test_metrics_beyond_the_limit_are_not_sent() -> None:
    outbox = Outbox("node-1")
    metrics: dict[str, float | None] = {f"layer{number}": 1.0 for number in range(100)}
    metrics |= {"x" * 500: 1.0, "loss": 0.5}
    report_progress(outbox, SourceReport(START, 1, None, metrics))
    batch = outbox.batch(START)
    assert batch is not None
    kept = batch.pods[0].reports[0].metrics
    assert len(kept) == 16
    assert kept["loss"] == 0.5


def test_pods_that_are_long_gone_are_forgotten() -> None:
    outbox = Outbox("node-1")
    report_progress(outbox, report(0, 1))
    outbox.end("u", START)
    assert send_batch(outbox, 1) == [1]
    assert outbox.batch(START + 601) is None
    outbox.resend_to("second")
    assert outbox.batch(START + 602) is None


def test_a_registered_save_goes_out_without_reports_and_again_to_a_new_operator() -> None:
    outbox = Outbox("node-1")
    outbox.take("u", "default", "pod", True, (), saves_on_request=True)
    assert outbox.is_due(START + 10, START)
    for _ in range(2):
        batch = outbox.batch(START + 10)
        assert batch is not None
        assert [(pod.uid, pod.reports, pod.saves_on_request) for pod in batch.pods] == [("u", [], True)]
        outbox.confirm_batch()
        assert outbox.batch(START + 11) is None
        outbox.resend_to("new")
