"""Tables of results: readable at 100 columns, with the words of the JSON keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sterna.cli.render.output import console
from sterna.model.formatting import format_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sterna.control.shadow_rules import Shadow
    from sterna.experiments.comparison import Comparison
    from sterna.experiments.result import Result


def show_result(result: Result, cluster: str, has_faults: bool = False) -> None:
    out = console()
    out.print(f"{result.policy} with placement {result.placement} on {cluster}")
    table = _plain_table()
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, value, note in _facts(result, has_faults):
        table.add_row(name, value, note)
    out.print(table)
    _show_lines(out, result.left_out)


def _facts(result: Result, has_faults: bool) -> Iterable[tuple[str, str, str]]:
    counts = result.counts
    yield "jobs", result.format_number("jobs"), ""
    yield "mean completion time", result.format_number("avg_jct_s", decimals=2), "s"
    yield "median, p95, p99", " / ".join(map(result.format_number, ("p50_jct_s", "p95_jct_s", "p99_jct_s"))), "s"
    yield "mean wait", result.format_number("avg_wait_s", decimals=2), "s"
    yield "makespan", result.format_number("makespan_s", decimals=2), "s"
    yield "utilization", result.format_number("utilization"), ""
    yield "slowdown, its p99", " / ".join(map(result.format_number, ("avg_slowdown", "p99_slowdown"))), ""
    yield "finish-time fairness, its p99", " / ".join(map(result.format_number, ("avg_fairness", "p99_fairness"))), ""
    yield "over the lower bound", result.format_number("over_bound"), "times the least possible mean"
    yield "lost to restarts and stops", result.format_number("lost_device_hours", decimals=1), "device-hours"
    yield "across nodes, fragmented", " / ".join(map(result.format_number, ("cross_node_share", "fragmentation"))), ""
    yield "stops, moves, resizes", f"{counts.preemptions:,} / {counts.migrations:,} / {counts.resizes:,}", ""
    for name in result.scenario.metrics:
        yield name, result.format_number(name), ""
    if counts.failures or has_faults:
        yield "stopped by lost nodes", f"{counts.failures:,}", ""
    if counts.lost_seconds:
        yield "work lost", f"{counts.lost_seconds:,.0f}", "s at one worker"
    yield "simulated in", f"{result.wall_seconds:.2f}", f"s, {format_count(counts.rounds, 'round')}"


def show_comparison(comparison: Comparison, cluster: str, source: str) -> None:
    from sterna.experiments.result import COLUMNS

    out = console()
    jobs = int(comparison.baseline.number("jobs") or 0)
    out.print(f"{source}: {format_count(jobs, 'job')} on {cluster}; times in seconds", soft_wrap=True)
    _print_whole(out, _policy_table(comparison, COLUMNS))
    legend = "* best of its column. " if comparison.best else ""
    out.print(f"{legend}{comparison.about_ratios}")
    out.print()
    _print_whole(out, _policy_table(comparison, comparison.baseline.metric_columns))
    out.print(comparison.about_metrics)
    _show_lines(out, comparison.left_out)


def _policy_table(comparison: Comparison, columns: Sequence[tuple[str, str]]) -> Table:
    """Make a table with one row per policy; the mean completion time is followed by its ratio to the baseline's."""
    table = _plain_table()
    table.show_header = True
    table.padding = 0
    table.add_column("policy", overflow="fold")
    for key, title in columns:
        table.add_column(title, justify="right", no_wrap=True)
        if key == "avg_jct_s":
            table.add_column("ratio", justify="right", no_wrap=True)
    for result in comparison.results:
        cells = [result.policy]
        for key, _ in columns:
            cells.append(result.format_number(key) + ("*" if comparison.is_best(result, key) else ""))
            if key == "avg_jct_s":
                ratio = comparison.ratio(result, key)
                cells.append("-" if ratio is None else f"{ratio:.3f}")
        table.add_row(*cells)
    return table


def _print_whole(out: Console, table: Table) -> None:
    """Print a table that may be wider than the terminal, rather than break names if numbers are large."""
    width = out.width
    out.width = max(width, _natural_width(out, table))
    out.print(table)
    out.width = width


def show_shadow(policy: str, shadow: Shadow) -> None:
    """Print how often a shadow policy would have decided otherwise."""
    ratio = shadow.speed_ratio
    expected = "" if ratio is None else f", and expected {ratio:.2f} times the work a second"
    console().print(
        f"In the shadow {policy} would have done otherwise in {shadow.differing:,} of "
        f"{format_count(shadow.rounds, 'round')}{expected}."
    )


def show_plan(answer: Mapping[str, Any], before: Mapping[str, int]) -> None:
    """Print every job with its workers before and after, its nodes, and the reason."""
    out = console()
    table = _plain_table()
    table.show_header = True
    servers = answer["parameter_servers"]
    for title in ("job", "workers", "nodes", *(["parameter servers"] if servers else []), "why"):
        table.add_column(title, justify="right" if title == "workers" else "left", overflow="fold")
    for job, workers in answer["allocation"].items():
        previous = before.get(job, 0)
        change = str(workers) if previous == workers else f"{previous} -> {workers}"
        nodes = [_by_node(answer["placement"][job]), *([_by_node(servers.get(job, {}))] if servers else [])]
        table.add_row(job, change, *nodes, answer["reasons"].get(job, ""))
    out.print(table)
    changes = len(answer["actions"])
    out.print("Nothing changes." if not changes else f"{changes} jobs change." if changes > 1 else "1 job changes.")


def _by_node(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{node}: {count}" for node, count in counts.items())


_CLUSTER_COMMANDS = "of up, operator and policy set, not of simulate, compare and plan."
_KINDS = {
    "policy": (
        "Policies",
        "Number of workers of each job: --policy of simulate, plan, replay, whatif, up and operator, --policies of "
        "compare, POLICY of policy set.",
    ),
    "placement": (
        "Placements",
        "Node of each worker: --placement of simulate, compare, plan, replay, whatif, up, operator and policy set.",
    ),
    "migration": ("Migrations", f"Moves of running jobs: --migration {_CLUSTER_COMMANDS}"),
    "cpu_share": ("CPU shares", f"Division of a shared node's CPUs: --cpu-share {_CLUSTER_COMMANDS}"),
    "reservation": ("Reservations", f"Capacity reserved for serving pods: --reservation {_CLUSTER_COMMANDS}"),
}
"""Heading of each kind of rule, and what it decides, with the options that take it."""


def show_rules(kinds: Mapping[str, Any]) -> None:
    out = console()
    for kind, infos in kinds.items():
        plural, question = _KINDS[kind]
        out.print(f"{plural}, written name or name:key=value:key=value")
        out.print(question, soft_wrap=True)
        for info in infos:
            aliases = f" ({', '.join(info['aliases'])})" if info["aliases"] else ""
            out.print(f"\n  {info['name']}{aliases}: {info['summary']}", soft_wrap=True)
            for parameter in info["parameters"]:
                shown = str(parameter["default"]).lower() if parameter["type"] == "bool" else parameter["default"]
                out.print(f"      {parameter['name']}={shown}  {parameter['help']}", soft_wrap=True)
        out.print()


def show_facts(facts: Mapping[str, Any]) -> None:
    out = console()
    table = _plain_table()
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _format_fact(value))
    out.print(table)


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_format_fact(each)}" for key, each in value.items())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return str(value)


def _natural_width(out: Console, table: Table) -> int:
    return table.__rich_measure__(out, out.options.update(max_width=1000)).maximum


def _plain_table() -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, show_header=False, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def _show_lines(out: Console, lines: Iterable[str]) -> None:
    for line in lines:
        out.print(line, soft_wrap=True)
