"""`sterna get`: list jobs, nodes and events as tables, JSON or YAML, once or as they change."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.render.columns import TABLES, TIMES, Row, align_columns
from sterna.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from sterna.service.cluster_service import ClusterService
    from sterna.service.updates import Update

Kind = Annotated[str, typer.Argument(metavar="jobs|nodes|events", help="Kind of object to list.")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these; for events, those of these jobs.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="wide|json|yaml", help="More columns, or a document.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print changes until interrupted.")]
_CLEAR = "\x1b[H\x1b[J"


@expand_options
def command(
    what: Kind, cluster: ClusterOptions, names: Names = None, output: Output = "", watch: Watch = False
) -> None:
    """List jobs, nodes or events of a running cluster.

    \b
    Examples:
      sterna get jobs
      sterna get jobs -o wide --watch
      sterna get nodes -o json
      sterna get events train-1
      sterna get jobs --context lab -A
    """
    kind = _kind(what)
    if output not in ("", "wide", "json", "yaml"):
        raise UserError(f"-o {output}: {did_you_mean(output, ('wide', 'json', 'yaml'))}")
    service = cluster.connect()
    if watch:
        _watch(service, kind, names or [], output)
        return
    rows = _rows(service, kind, names or [])
    if output in ("json", "yaml"):
        show_document(rows, output)
    elif rows:
        print("\n".join(_table(kind, rows, output)))
    else:
        print(f"There are no {kind} yet.", file=sys.stderr)


def _kind(what: str) -> str:
    plural = what if what.endswith("s") else f"{what}s"
    if plural not in TABLES:
        raise UserError(f"There is nothing called '{what}' to list; {did_you_mean(plural, TABLES)}")
    return plural


def _rows(service: ClusterService, kind: str, names: Sequence[str]) -> list[Row]:
    if kind == "jobs":
        return [service.job(name) for name in names] if names else [*service.jobs()]
    if kind == "nodes":
        return [service.node(name) for name in names] if names else [*service.nodes()]
    return [event for name in names or [""] for event in service.events(name)]


def show_document(value: object, output: str) -> None:
    """Print a value as JSON or YAML."""
    import json

    import msgspec

    document = msgspec.to_builtins(value)
    if output == "json":
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    import yaml

    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")


def _table(kind: str, rows: Iterable[Row], output: str) -> list[str]:
    titles, cells, wide_titles, wide_cells = TABLES[kind]
    if output == "wide":
        return align_columns(wide_titles, map(wide_cells, rows))
    return align_columns(titles, map(cells, rows))


def _watch(service: ClusterService, kind: str, names: Sequence[str], output: str) -> None:
    """On a terminal, redraw the table; elsewhere, print a line or a document for every change."""
    rows: dict[str, Row] = {}
    printed: dict[str, tuple[str, ...]] = {}
    is_terminal = sys.stdout.isatty()
    for update in service.watch((kind,)):
        changed = {
            identity: row for identity, row in _rows_of(update) if not names or not _names(row).isdisjoint(names)
        }
        rows.update(changed)
        for identity in getattr(update, "gone", ()):
            rows.pop(identity, None)
            printed.pop(identity, None)
        if output in ("json", "yaml"):
            for row in changed.values():
                show_document(row, output)
        elif is_terminal:
            print(_CLEAR + "\n".join(_table(kind, rows.values(), output)))
        else:
            _print_changes(kind, rows, printed, output)
        sys.stdout.flush()


def _print_changes(kind: str, rows: dict[str, Row], printed: dict[str, tuple[str, ...]], output: str) -> None:
    """Print the rows that differ from what was printed before, not counting the columns of elapsed time."""
    titles, *lines = _table(kind, rows.values(), output)
    if not printed:
        print(titles)
    for (identity, row), line in zip(rows.items(), lines, strict=True):
        cells = tuple(
            cell for title, cell in zip(TABLES[kind][0], TABLES[kind][1](row), strict=True) if title not in TIMES
        )
        if printed.get(identity) != cells:
            printed[identity] = cells
            print(line)


def _rows_of(update: Update) -> Iterator[tuple[str, Row]]:
    from sterna.service.updates import EventsUpdate, JobsUpdate, NodesUpdate

    if isinstance(update, JobsUpdate):
        yield from ((job.identity, job) for job in update.changed)
    elif isinstance(update, NodesUpdate):
        yield from ((node.name, node) for node in update.nodes)
    elif isinstance(update, EventsUpdate):
        yield from ((str(event.number), event) for event in update.events)


def _names(row: Row) -> set[str]:
    """Return the names by which a row may be asked for."""
    name = str(getattr(row, "job", "") or getattr(row, "name", ""))
    namespace = getattr(row, "namespace", "")
    return {name, f"{namespace}/{name}"} if namespace else {name}
