"""`sterna trace`: describe or generate traces."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sterna.cli.parsing.options import Elastic
from sterna.cli.parsing.parameters import AsJson
from sterna.errors import ParameterError, UserError, did_you_mean
from sterna.parse_number import real

if TYPE_CHECKING:
    from sterna.workloads.generate import Mix
    from sterna.workloads.trace import Trace

Name = TypeVar("Name", int, str)

app = typer.Typer(help="Describe or generate a trace.", no_args_is_help=True, rich_markup_mode=None)

_OPTIONS_OF = {
    "poisson": ("mean_gap_seconds",),
    "bursty": ("mean_gap_seconds", "burst_jobs", "mean_pause_seconds"),
    "fixed": ("gap_seconds",),
    "random": ("window_seconds",),
}
_FLAGS = {
    "mean_gap_seconds": "--mean-gap",
    "burst_jobs": "--burst-jobs",
    "mean_pause_seconds": "--mean-pause",
    "gap_seconds": "--gap",
    "window_seconds": "--window",
}
_ALL_FLAGS = _FLAGS | {
    "jobs": "--jobs",
    "seed": "--seed",
    "mean_duration_seconds": "--mean-duration",
    "duration_spread": "--duration-spread",
    "workers": "--workers",
    "models": "--models",
}
_WORKERS_FORM = "write NUMBER=WEIGHT with commas between them, e.g. 1=5,2=2,4=1"
_MODELS_FORM = "write NAME or NAME=WEIGHT with commas between them, e.g. vgg16,resnet50=2"


@app.command("info")
def info(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="Trace file of any known format.")],
    format: Annotated[str | None, typer.Option("--format", help="Format of the trace.  [default: detected]")] = None,
    as_json: AsJson = False,
) -> None:
    """Describe a trace: number of jobs, durations, sizes, users.

    \b
    Examples:
      sterna trace info jobs.csv
      sterna trace info jobs.json.gz --json
    """
    from sterna.cli.render.output import show_json, show_notices
    from sterna.cli.render.tables import show_facts
    from sterna.experiments.report.trace_facts import trace_facts
    from sterna.workloads.load import load_trace

    loaded = load_trace(trace, format)
    show_notices(loaded.notices)
    facts = trace_facts(loaded)
    if as_json:
        show_json(facts | {"notices": list(loaded.notices)})
    else:
        show_facts(facts)


@app.command("make")
def make(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="poisson, bursty, fixed or random.")],
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="[default: stdout]")] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help="Number of jobs.")] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed; equal seeds make equal traces.")] = 0,
    mean_gap: Annotated[
        float | None, typer.Option("--mean-gap", metavar="SECONDS", help="poisson, bursty: mean time between jobs.")
    ] = None,
    burst_jobs: Annotated[
        int | None, typer.Option("--burst-jobs", metavar="N", help="bursty: jobs in a burst.")
    ] = None,
    mean_pause: Annotated[
        float | None, typer.Option("--mean-pause", metavar="SECONDS", help="bursty: mean time between bursts.")
    ] = None,
    gap: Annotated[float | None, typer.Option("--gap", metavar="SECONDS", help="fixed: time between jobs.")] = None,
    window: Annotated[
        float | None,
        typer.Option("--window", metavar="SECONDS", help="random: length of the time in which all jobs arrive."),
    ] = None,
    mean_duration: Annotated[
        float, typer.Option("--mean-duration", metavar="SECONDS", help="Mean of the durations, which are log-normal.")
    ] = 3600.0,
    duration_spread: Annotated[
        float, typer.Option("--duration-spread", metavar="SIGMA", help="0: all alike; 1.5: a few are very long.")
    ] = 1.5,
    workers: Annotated[
        str, typer.Option("--workers", metavar="N=WEIGHT,..", help="Numbers of workers and their weights.")
    ] = "1=5,2=2,4=2,8=1",
    models: Annotated[
        str,
        typer.Option("--models", metavar="NAME,..", help="Built-in profiles, all, or none; NAME=WEIGHT weighs them."),
    ] = "all",
    elastic: Elastic = None,
    as_json: AsJson = False,
) -> None:
    """Generate a trace from a seed, in Sterna's own CSV.

    \b
    Examples:
      sterna trace make poisson --jobs 1000 --mean-gap 30 -o jobs.csv
      sterna trace make bursty --burst-jobs 20 --mean-pause 1800 --seed 7 -o bursts.csv.gz
      sterna trace make random --window 500 --workers 1=1,4=1 --models vgg16,resnet50=2 --elastic 1x:4x
    """
    from sterna.workloads.generate import GENERATORS

    if kind not in GENERATORS:
        raise UserError(f"There is no generator '{kind}': {did_you_mean(kind, GENERATORS)}")
    given: dict[str, Any] = {
        "mean_gap_seconds": mean_gap,
        "burst_jobs": burst_jobs,
        "mean_pause_seconds": mean_pause,
        "gap_seconds": gap,
        "window_seconds": window,
    }
    own = {name: value for name, value in given.items() if value is not None}
    for name in own:
        if name not in _OPTIONS_OF[kind]:
            flags = ", ".join(_FLAGS[each] for each in _OPTIONS_OF[kind])
            raise UserError(f"{_FLAGS[name]} does not apply to {kind} traces, which take {flags}; leave it out.")
    try:
        mix = _mix(mean_duration, duration_spread, workers, models, elastic)
        made = GENERATORS[kind](jobs=jobs, seed=seed, mix=mix, **own)
    except ParameterError as error:
        raise UserError(f"{_ALL_FLAGS[error.parameter]}: {error.wrong}") from None
    _write_trace(made, output, as_json)


def _mix(mean_duration: float, spread: float, workers: str, models: str, elastic: str | None) -> Mix:
    from sterna.workloads.generate import Mix
    from sterna.workloads.trace import parse_elastic

    least, most = parse_elastic(elastic) if elastic is not None else (1.0, 1.0)
    parts: dict[str, Any] = {}
    if models.strip() != "all":
        parts["models"] = {} if models.strip() == "none" else _weights("--models", models, str, _MODELS_FORM)
    counts = _weights("--workers", workers, _count, _WORKERS_FORM)
    return Mix(
        mean_duration_seconds=mean_duration, duration_spread=spread, workers=counts, least=least, most=most, **parts
    )


def _weights(option: str, text: str, read: Callable[[str], Name], form: str) -> dict[Name, float]:
    """Parse weights: in `a=2,b`, a is twice as frequent as b."""
    weights: dict[Name, float] = {}
    for part in text.split(","):
        word, equals, weight = (each.strip() for each in part.partition("="))
        if not word:
            raise UserError(f"{option} {text}: there is nothing before a comma, an = or the end; {form}.")
        try:
            name = read(word)
        except ValueError:
            raise UserError(f"{option} {text}: '{word}' is not a number of workers; {form}.") from None
        if name in weights:
            raise UserError(f"{option} {text}: '{word}' is there twice; keep one of them.")
        try:
            weights[name] = real(weight) if equals else 1.0
        except ValueError:
            raise UserError(f"{option} {text}: '{weight}' is not a weight; {form}.") from None
    return weights


def _count(word: str) -> int:
    if not (word.isascii() and word.isdecimal()):
        raise ValueError(word)
    return int(word)


def _write_trace(trace: Trace, output: str | None, as_json: bool) -> None:
    from sterna.cli.render.files import output_file
    from sterna.cli.render.output import show_json
    from sterna.experiments.report.trace_facts import trace_facts, trace_rows
    from sterna.model.formatting import format_count
    from sterna.workloads.formats.native import write_native

    text = io.StringIO()
    write_native(trace, text)
    with output_file(output, "-o") as write:
        # A fixed time stamp, so that the same trace is the same file.
        write(gzip.compress(text.getvalue().encode(), mtime=0) if str(output).endswith(".gz") else text.getvalue())
    if as_json:
        show_json(trace_facts(trace) | ({"file": output} if output else {"rows": trace_rows(trace)}))
    elif output is None:
        print(text.getvalue(), end="")
    else:
        print(f"{output}: {format_count(len(trace), 'job')}")
