"""`sterna get`: jobs, nodes and events as tables, JSON or YAML, once or as they change."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from sterna.cli.connect.client import Client, ServerUrl, State, client
from sterna.cli.render.columns import TABLES, TIMES, aligned, identity
from sterna.errors import UserError, did_you_mean

What = Annotated[str, typer.Argument(metavar="jobs|nodes|events", help="What to list.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these; for events, of these jobs.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="wide|json|yaml", help="More columns, or a document.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on as things change, until interrupted.")]
_CLEAR = "\x1b[H\x1b[J"


def command(
    what: What,
    names: Names = None,
    output: Output = "",
    watch: Watch = False,
    state: State = None,
    server: ServerUrl = None,
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
    cluster = client(state, server)
    if watch:
        _watch(cluster, kind, names or [], output)
        return
    rows = _rows(cluster, kind, names or [])
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


def _rows(cluster: Client, kind: str, names: Sequence[str]) -> list[dict[str, Any]]:
    if not names:
        return list(cluster.get(kind))
    if kind == "events":
        return [row for name in names for row in cluster.get(kind, job=name)]
    return [cluster.get(kind, name) for name in names]


def show_document(value: Any, output: str) -> None:
    """A value as JSON or YAML."""
    import json

    if output == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
        return
    import yaml

    print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def _table(kind: str, rows: Iterable[dict[str, Any]], output: str) -> list[str]:
    titles, cells, wide_titles, wide_cells = TABLES[kind]
    if output == "wide":
        return aligned(wide_titles, map(wide_cells, rows))
    return aligned(titles, map(cells, rows))


def _watch(cluster: Client, kind: str, names: Sequence[str], output: str) -> None:
    """On a terminal the table is drawn anew; elsewhere every change is a line, or a document."""
    known: dict[str, dict[str, Any]] = {}
    told: dict[str, tuple[str, ...]] = {}
    is_terminal = sys.stdout.isatty()
    for _, value in cluster.watch(kind=kind):
        changed = [row for row in _changed(kind, value) if not names or not _keys(kind, row).isdisjoint(names)]
        known.update((_identity(kind, row), row) for row in changed)
        for name in value["gone"] if kind == "jobs" else ():
            known.pop(name, None)
            told.pop(name, None)
        if output in ("json", "yaml"):
            for row in changed:
                show_document(row, output)
        elif is_terminal:
            print(_CLEAR + "\n".join(_table(kind, known.values(), output)))
        else:
            _tell(kind, known, told, output)
        sys.stdout.flush()


def _tell(kind: str, known: dict[str, dict[str, Any]], told: dict[str, tuple[str, ...]], output: str) -> None:
    """Lines of what is not as it was when it was last told; that time has passed does not count."""
    titles, *lines = _table(kind, known.values(), output)
    if not told:
        print(titles)
    for (key, row), line in zip(known.items(), lines, strict=True):
        cells = tuple(
            cell for title, cell in zip(TABLES[kind][0], TABLES[kind][1](row), strict=True) if title not in TIMES
        )
        if told.get(key) != cells:
            told[key] = cells
            print(line)


def _changed(kind: str, value: Any) -> list[dict[str, Any]]:
    return list(value["changed"] if kind == "jobs" else value)


def _keys(kind: str, row: dict[str, Any]) -> set[str]:
    """Names that it may be asked for by."""
    name = str(row["job"] if kind == "events" else row["name"])
    return {name, f"{row['namespace']}/{name}"} if "namespace" in row else {name}


def _identity(kind: str, row: dict[str, Any]) -> str:
    return str(row["number"]) if kind == "events" else identity(row)
