"""Numbers, screens and page of the demo on invented phases; end-to-end tests run real ones."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from sterna.errors import UserError
from sterna.experiments.demo.figures import core_use
from sterna.experiments.demo.load import LoadMeter, LoadReading
from sterna.experiments.demo.mix import MIX, TrainingTask, make_tasks, mean_by_model
from sterna.experiments.demo.report import demo_page
from sterna.experiments.demo.run import Demo, DemoCluster, DemoPhase, JobsSample, PhaseResult, Watcher, phases
from sterna.experiments.demo.screen import LiveScreen, Screen, screen_for
from sterna.experiments.demo.summary import cautions, document, headline, sentences
from sterna.service.views import JobView
from tests.fakes.cluster import FakeCluster

COSTS = dict.fromkeys(("softmax", "mlp", "coder", "conv", "rnn"), 0.001)
EQUAL, FIFO, STERNA = phases(2)


def a_job(name: str, seconds: float, moves: int = 0) -> JobView:
    return JobView(
        name, "TrainingJob", "completed", "", 1, 1, 1, 1, 0, "", "", 100.0, ended_at=100.0 + seconds, cpu_seconds=1.0,
        moves=moves, step=10, total=10, value=0.5,
    )  # fmt: skip


def a_result(phase: DemoPhase, *seconds: float, others: float = 0.0, control: str = "cgroup v1: weight") -> PhaseResult:
    jobs = tuple(a_job(f"mlp-{number}", each) for number, each in enumerate(seconds, 1))
    begun = tuple(a_job(job.name, 0.0) for job in jobs)
    for job in begun:
        job.state, job.step, job.cpu_seconds = "running", 1, 0.0
    return PhaseResult(phase, [JobsSample(0.0, begun), JobsSample(2.0, jobs)], others, control)


@pytest.fixture
def results() -> list[PhaseResult]:
    return [a_result(EQUAL, 10.0, 20.0), a_result(FIFO, 16.0, 8.0), a_result(STERNA, 5.0, 16.0)]


# Running phases.


def test_the_work_is_what_was_asked_for_whatever_a_step_costs() -> None:
    for cost in (0.0001, 0.01):
        work = make_tasks(dict.fromkeys(COSTS, cost), 50.0)
        assert [each.name for each in work] == [each.name for each in MIX]
        assert sum(each.steps * cost for each in work) == pytest.approx(50.0, rel=0.02)


def test_the_order_is_neither_good_nor_bad_for_fifo() -> None:
    def mean(lengths: list[float]) -> float:
        free, ends = [0.0, 0.0], []
        for each in lengths:
            free[0] += each
            ends.append(free[0])
            free.sort()
        return sum(ends) / len(ends)

    lengths = [each.length for each in MIX]
    turned = [mean(lengths[at:] + lengths[:at]) for at in range(len(lengths))]
    turned += [mean((lengths[at:] + lengths[:at])[::-1]) for at in range(len(lengths))]
    assert mean(lengths) == pytest.approx(sum(turned) / len(turned), rel=0.05)


def test_jobs_share_nodes_or_request_a_core_by_phase() -> None:
    each = make_tasks(COSTS, 10.0)[0]
    assert each.spec(0, "").worker.cpus == 0
    assert each.spec(1000, "").worker.cpus == 1000
    assert each.spec(0, "").replicas[0].command == each.spec(1000, "").replicas[0].command


def test_measurements_of_several_cores_are_averaged() -> None:
    assert mean_by_model([{"mlp": 1.0}, {"mlp": 3.0}]) == {"mlp": 2.0}


def test_a_machine_with_one_core_has_nodes_of_one_core() -> None:
    assert {phase.nodes for phase in phases(1)} == {"1x1cpu"}


class Meter(LoadMeter):
    """Returns the given readings of other processes in turn."""

    def __init__(self, *others: float) -> None:
        super().__init__({0}, 1)
        self._told = list(others)

    def others(self, since: LoadReading, until: LoadReading, job_seconds: float) -> float:
        return self._told.pop(0)


class DoneAtOnce(FakeCluster):
    """Open a cluster whose jobs have all ended."""

    state = "completed"

    def jobs(self) -> list[JobView]:
        for job in self.views.values():
            job.state, job.ended_at, job.exit_code = self.state, job.submitted_at + 1.0, 0
        return super().jobs()


@contextmanager
def done_at_once(phase: DemoPhase) -> Iterator[DemoCluster]:
    yield DemoCluster(DoneAtOnce(), "http://127.0.0.1:1", "")


def run(*others: float, repeats: int = 2) -> list[PhaseResult]:
    work = [TrainingTask(each, 10, 1.0) for each in MIX]
    return Demo(work, done_at_once, Meter(*others), Watcher(), repeats).run((EQUAL, FIFO, STERNA))


def test_a_disturbed_phase_is_run_again_and_the_quieter_run_counts() -> None:
    results = run(0.0, 0.3, 0.05, 0.0)
    assert [result.others for result in results] == [0.0, 0.05, 0.0]
    assert [result.discarded for result in results] == [[], [0.3], []]


def test_a_machine_that_stays_busy_is_not_asked_again_and_again() -> None:
    results = run(0.3, 0.4, 0.5, 0.6)
    assert [result.discarded for result in results] == [[0.4], [], []]
    assert all(result.is_disturbed for result in results)


def test_phase_is_not_repeated_if_the_load_of_others_is_unknown() -> None:
    assert [result.discarded for result in run(*[math.nan] * 3)] == [[], [], []]


def test_a_job_that_fails_ends_the_demo_with_a_sentence() -> None:
    class Failing(DoneAtOnce):
        state = "failed"

    @contextmanager
    def failing(phase: DemoPhase) -> Iterator[DemoCluster]:
        yield DemoCluster(Failing(), "", "")

    demo = Demo([TrainingTask(MIX[0], 1, 1.0)], failing, Meter(0.0), Watcher())
    with pytest.raises(UserError, match=f"'{MIX[0].name}' ended with code"):
        demo.run((EQUAL,))


# Load of other processes.


def stat(path: Path, first: int, second: int) -> Path:
    path.write_text(f"cpu  1 1 1 1\ncpu0 {first} 0 0 999 0 0 0 0 0 0\ncpu1 {second} 0 0 999 0 0 0 50 0 0\nintr 5\n")
    return path


def test_what_neither_jobs_nor_demo_used_was_taken_by_others(tmp_path: Path) -> None:
    meter = LoadMeter({0, 1}, 2, stat(tmp_path / "stat", 100, 100))
    since = LoadReading(0.0, meter.read().busy_seconds, 0.0)
    stat(tmp_path / "stat", 1100, 500)
    until = LoadReading(10.0, meter.read().busy_seconds, 1.0)
    assert meter.others(since, until, job_seconds=8.0) == pytest.approx((14.0 - 8.0 - 1.0) / 20.0)


def test_time_on_cores_that_are_not_watched_does_not_count(tmp_path: Path) -> None:
    meter = LoadMeter({0}, 2, stat(tmp_path / "stat", 100, 100))
    before = meter.read().busy_seconds
    stat(tmp_path / "stat", 100, 9000)
    assert meter.read().busy_seconds == before


@pytest.mark.parametrize("text", [None, "cpu0 1 2 3 4\n"], ids=["no file", "a core is missing"])
def test_what_cannot_be_read_is_unknown(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    meter = LoadMeter({0, 1}, 2, tmp_path / "stat")
    assert math.isnan(meter.others(LoadReading(0.0, meter.read().busy_seconds, 0.0), meter.read(), 0.0))


# Summary.


def test_headline_has_the_relative_gain(results: list[PhaseResult]) -> None:
    said = headline(results)
    assert said == "With Sterna the mean job was done 30% sooner than with equal sharing and 12% sooner than with FIFO."


def test_best_and_worst_job_are_named_with_their_times(results: list[PhaseResult]) -> None:
    assert "best off is mlp-1 (5.0 s instead of 16.0 s), worst off mlp-2 (16.0 s instead of 8.0 s)" in "\n".join(
        sentences(results)
    )


def test_a_quiet_run_needs_no_cautions(results: list[PhaseResult]) -> None:
    assert cautions(results) == []


def test_disturbed_repeated_unknown_and_loosely_controlled_phases_are_reported(results: list[PhaseResult]) -> None:
    results[0].others, results[1].discarded = 0.5, [0.2]
    results[2].others, results[2].control = math.nan, "affinity"
    said = "\n".join(cautions(results))
    assert "Others took more than 10% of the CPUs (50% during Equal sharing)" in said
    assert "FIFO was run again, because others took 20%" in said
    assert "could not be measured" in said
    assert "No control groups here" in said
    assert headline(results).endswith("but other programs disturbed it.")


def test_the_document_holds_every_phase(results: list[PhaseResult]) -> None:
    told = document(results)
    assert [each["phase"] for each in told["phases"]] == ["equal", "fifo", "sterna"]
    assert told["comparisons"][0]["saved"] == 0.3
    assert told["phases"][2]["jobs"] == {"mlp-1": 5.0, "mlp-2": 16.0}


def test_cores_are_cpu_seconds_between_two_samples(results: list[PhaseResult]) -> None:
    times, cores = core_use(results[0])
    assert times == [0.0, 2.0]
    assert cores["mlp-1"] == [0.5, 0.0]


# Screen and page.


def watched(screen: Screen, results: list[PhaseResult]) -> None:
    screen.prepare(2, 25.0)
    for result in results:
        screen.begin(result.phase, "http://127.0.0.1:8470", is_again=False)
        for sample in [*result.samples, JobsSample(6.0, result.jobs)]:
            screen.show(result.phase, sample)
        screen.end(result, will_repeat=False)
    screen.close()
    screen.compare(results, 90.0)


def test_without_a_terminal_it_is_plain_lines(results: list[PhaseResult]) -> None:
    out = io.StringIO()
    screen = screen_for(Console(file=out, width=100), 3)
    watched(screen, results)
    said = out.getvalue()
    assert type(screen) is Screen
    assert "\x1b" not in said
    assert said.count("watch it in a browser: http://127.0.0.1:8470") == 1
    assert "       6 s:  2 of 2 jobs done, 100% trained" in said
    assert "…" not in said


def test_on_a_terminal_a_table_moves(results: list[PhaseResult]) -> None:
    out = io.StringIO()
    screen = screen_for(Console(file=out, width=100, force_terminal=True, _environ={"TERM": "xterm"}), 3)
    watched(screen, results)
    assert isinstance(screen, LiveScreen)
    assert "done after" in out.getvalue()


def test_the_page_stands_alone(results: list[PhaseResult]) -> None:
    page = demo_page(results, "sterna demo <x>")
    assert headline(results) in page
    assert "sterna demo &lt;x&gt;" in page
    assert page.count('id="figure-') == 4
    assert "<script src" not in page
    assert "<link" not in page


def test_change_of_machine_speed_is_reported(results: list[PhaseResult]) -> None:
    results[0].jobs[0].cpu_seconds = 2.0
    assert "The same work took from 2 to 3 s of CPU time" in "\n".join(cautions(results))
