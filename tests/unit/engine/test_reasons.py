"""Reasons of waiting and changed jobs: the code and the missing number, in one sentence."""

from __future__ import annotations

import pytest

from sterna.model.reason import Code, Reason
from tests.builders import a_job, a_node, a_snapshot, decided, some_nodes


def test_too_few_devices_are_free() -> None:
    jobs = [a_job("runs", 3, on={"n0": 3}), a_job("waits", 4, submit=1)]
    assert decided(a_snapshot(jobs, 5), "fifo").reasons == {"waits": "waits: 2 more devices needed (2 free)."}


def test_what_the_plan_takes_is_not_free() -> None:
    jobs = [a_job("first", 3), a_job("second", 4, submit=1)]
    assert decided(a_snapshot(jobs, 5), "fifo").reasons["second"] == "waits: 2 more devices needed (2 free)."


def test_what_the_plan_frees_is() -> None:
    jobs = [a_job("first", 3), a_job("stopped", 4, submit=1, on={"n0": 4}), a_job("third", 4, submit=2)]
    reasons = decided(a_snapshot(jobs, 5), "fifo").reasons
    assert reasons["stopped"] == "stopped with 4 workers to make room for first, which goes first under this policy."
    assert reasons["third"] == "waits: 2 more devices needed (2 free)."


def test_the_cluster_is_too_small() -> None:
    result = decided(a_snapshot([a_job("huge", 9)], some_nodes(4, 4)), "fifo")
    assert result.reasons == {"huge": "cannot run: it needs 9 workers at once and the whole cluster has room for 8."}


def test_free_but_not_together() -> None:
    jobs = [a_job("x", 1, on={"n0": 1}), a_job("y", 1, on={"n1": 1}), a_job("a", 1, devices=2, submit=1)]
    sentence = decided(a_snapshot(jobs, some_nodes(2, 2)), "fifo").reasons["a"]
    assert sentence == (
        "waits: 2 devices are free, but not where its 1 worker could be placed: both nodes have at most 1 free of the "
        "2 devices it needs."
    )


def test_strict_order_keeps_a_job_behind() -> None:
    jobs = [a_job("runs", 3, on={"n0": 3}), a_job("big", 4, submit=1), a_job("small", 1, submit=2)]
    reasons = decided(a_snapshot(jobs, 5), "fifo:preempt=false:backfill=false").reasons
    assert reasons["big"] == "waits: 2 more devices needed (2 free)."
    assert reasons["small"].startswith("waits: jobs that go first under this policy ")


def test_the_reason_of_a_job_that_requests_more_than_is_free_counts_what_is_missing() -> None:
    """Tiresias gives the request or nothing: 4 asked for, 2 free, though the minimum of 1 would fit."""
    jobs = [a_job("runs", 4, on={"n0": 4}), a_job("a", (1, 8), workers=4, submit=1)]
    result = decided(a_snapshot(jobs, 6), "tiresias")
    assert result.allocation == {"runs": 4, "a": 0}
    assert result.reasons["a"] == "waits: 2 more devices needed (2 free)."


def test_cpus_are_called_cpus() -> None:
    jobs = [a_job("runs", 3, devices=0, cpus=1, on={"n0": 3}), a_job("waits", 3, devices=0, cpus=1, submit=1)]
    reasons = decided(a_snapshot(jobs, [a_node("n0", 0, cpus=4)]), "fifo").reasons
    assert reasons == {"waits": "waits: 2 more CPUs needed (1 free)."}


def test_reasons_of_resizes_name_both_sizes() -> None:
    jobs = [a_job("a", (1, 4), on={"n0": 4}), a_job("b", (1, 4), submit=1)]
    reasons = decided(a_snapshot(jobs, 4), "elastic-fifo").reasons
    assert reasons["a"] == "shrank from 4 to 2 workers to make room for b."
    assert reasons["b"] == "started with 2 workers."
    grown = decided(a_snapshot([a_job("a", (1, 4), on={"n0": 1})], 4), "elastic-fifo").reasons["a"]
    assert grown.startswith("grew from 1 to 4 workers")


def test_a_job_shrunk_by_the_rule_alone_has_no_evictor() -> None:
    reasons = decided(a_snapshot([a_job("a", (1, 4), on={"n0": 4})], 4), "fifo").reasons
    assert reasons == {"a": "shrank from 4 to 1 worker, the share that the policy gives it now."}


@pytest.mark.parametrize("code", Code)
def test_every_code_is_one_sentence_with_its_number(code: Code) -> None:
    sentence = Reason(0, "a", code, 3, 7, ("other",)).sentence
    assert sentence.endswith(".")
    assert sentence.count(".") == 1
    assert "3" in sentence
    assert "{" not in sentence


@pytest.mark.parametrize("code", Code)
def test_one_is_singular(code: Code) -> None:
    sentence = Reason(0, "a", code, 1, 1, ("other",)).sentence
    assert "1 workers" not in sentence
    assert "1 devices" not in sentence
    assert "1 more devices" not in sentence
