"""Output of a running demo: a live table with bars on a terminal, else a plain line every few seconds.

Pipes, CI and dumb terminals get plain text without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sterna.experiments.demo.run import DemoPhase, JobsSample, PhaseResult, Watcher, progress_of
from sterna.experiments.demo.summary import compare_phases, headline, is_disturbed, sentences

if TYPE_CHECKING:
    from sterna.service.views import JobView

_NEXT = "sterna up --detach --shared, then sterna submit --cpus 0 -- python train.py"
_LINE_SECONDS = 5.0
_REFRESH_SECONDS = 0.45
_BAR_WIDTH = 24
_GROWTH = {"progressing": "improves", "watching": "slows down", "converged": "converged"}


class Screen(Watcher):
    """Plain lines of text."""

    def __init__(self, console: Console, count: int) -> None:
        self._console, self._count = console, count
        self._number = 0
        self._printed_at = 0.0
        self._url = ""

    def print_line(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, soft_wrap=True)

    def prepare(self, cores: int, seconds: float) -> None:
        self.print_line(
            f"A dozen models, trained for real on {cores} core{'' if cores == 1 else 's'}, three times.", "bold"
        )
        self.print_line(f"    first this machine's speed is measured, so that each time takes about {seconds:.0f} s")

    def begin(self, phase: DemoPhase, url: str, is_again: bool) -> None:
        self._number += not is_again
        self._printed_at = 0.0
        again = " once more" if is_again else ""
        self.print_line("")
        self.print_line(f"{self._number} of {self._count}: {phase.title}{again}, {phase.about}", "bold")
        if url != self._url:
            self._url = url
            self.print_line(f"    watch it in a browser: {url}")

    def show(self, phase: DemoPhase, sample: JobsSample) -> None:
        if sample.at - self._printed_at >= _LINE_SECONDS:
            self._printed_at = sample.at
            done = f"{sample.done:2d} of {len(sample.jobs)} jobs done"
            self.print_line(f"    {sample.at:4.0f} s: {done}, {sample.progress:4.0%} trained")

    def end(self, result: PhaseResult, will_repeat: bool) -> None:
        unknown = result.others != result.others
        others = "what others took is unknown" if unknown else f"others took {result.others:.0%} of the CPUs"
        self.print_line(
            f"    done: a job took {result.mean_seconds:.1f} s in the mean, the longest "
            f"{result.longest_seconds:.1f} s; {others}"
        )
        if will_repeat:
            self.print_line("    that is too much for a fair comparison, so this phase is run again", "yellow")

    def compare(self, results: Sequence[PhaseResult], took_seconds: float) -> None:
        self.print_line("")
        self._console.print(_comparison(results))
        self.print_line("")
        is_good = all(each.saved > 0 for each in compare_phases(results)) and not is_disturbed(results)
        self.print_line(headline(results), "bold green" if is_good else "bold")
        for sentence in sentences(results):
            self.print_line(sentence)
        same = f"The same {len(results[0].jobs)} jobs in the same order each time"
        self.print_line(f"{same}; all of it took {took_seconds:.0f} s.")
        self.print_line(f"With your own jobs: {_NEXT}", "bold")


class LiveScreen(Screen):
    """A live table."""

    def __init__(self, console: Console, count: int) -> None:
        super().__init__(console, count)
        self._live: Live | None = None
        self._last: JobsSample | None = None

    def begin(self, phase: DemoPhase, url: str, is_again: bool) -> None:
        super().begin(phase, url, is_again)
        self._last = None
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, phase: DemoPhase, sample: JobsSample) -> None:
        is_due = self._last is None or sample.at - self._last.at >= _REFRESH_SECONDS
        if self._live is not None and is_due:
            self._live.update(_board(sample, self._last), refresh=True)
            self._last = sample

    def end(self, result: PhaseResult, will_repeat: bool) -> None:
        self.close()
        super().end(result, will_repeat)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def screen_for(console: Console, count: int) -> Screen:
    can_move = console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console, count) if can_move else Screen(console, count)


def _board(sample: JobsSample, last: JobsSample | None) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("job", no_wrap=True)
    table.add_column("trained", width=_BAR_WIDTH)
    for title in ("", "loss", "cores"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("growth", "node"):
        table.add_column(title, no_wrap=True)
    before = {job.name: job.cpu_seconds for job in last.jobs} if last is not None else {}
    span = sample.at - last.at if last is not None else 0.0
    for job in sample.jobs:
        cores = (job.cpu_seconds - before.get(job.name, 0.0)) / span if span > 0 else 0.0
        table.add_row(*_row(job, cores, sample.at))
    foot = Text(f"{sample.at:.0f} s, {sample.done} of {len(sample.jobs)} jobs done", style="dim")
    return Group(table, foot)


def _row(job: JobView, cores: float, at: float) -> list[RenderableType]:
    part = progress_of(job)
    bar = ProgressBar(1.0, part, width=_BAR_WIDTH, complete_style="cyan", finished_style="green")
    loss = "" if job.value is None else f"{job.value:.3f}"
    if job.state == "completed":
        took = (job.ended_at or 0.0) - job.submitted_at
        return [Text(job.name, "green"), bar, "100%", loss, "", Text(f"done after {took:.1f} s", "green"), ""]
    if job.state == "waiting":
        return [Text(job.name, "dim"), bar, "", "", "", Text("waits", "dim"), ""]
    has_cpu = "bold" if cores >= 0.5 else "dim" if cores < 0.05 else ""
    growth = _GROWTH.get(job.growth, "") if job.value is not None else "starts"
    node = job.nodes[0] if job.nodes else ""
    return [Text(job.name, has_cpu), bar, f"{part:.0%}", loss, Text(f"{cores:.2f}", has_cpu), growth, node]


def _comparison(results: Sequence[PhaseResult]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("mean time of a job", no_wrap=True)
    for title in ("longest", "moves", "work lost", "CPU of others"):
        table.add_column(title, justify="right", no_wrap=True)
    longest = max(result.mean_seconds for result in results)
    best = min(result.mean_seconds for result in results)
    for result in results:
        style = "green" if result.mean_seconds == best else ""
        bar = "█" * max(1, round(_BAR_WIDTH * result.mean_seconds / longest))
        others = "unknown" if result.others != result.others else f"{result.others:.0%}"
        table.add_row(
            Text(result.phase.title, style),
            Text(f"{bar} {result.mean_seconds:.1f} s", style),
            f"{result.longest_seconds:.1f} s",
            str(result.moves),
            f"{result.lost_seconds:g} s",
            others,
        )
    return table
