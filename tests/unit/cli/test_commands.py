"""The command line as a whole: help, small commands, and failures."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sterna import __version__
from sterna.cli import main as command_line
from sterna.engine.registry import RuleKind
from sterna.errors import Bug
from tests.unit.cli.conftest import Sterna

COMMANDS = ["simulate", "compare", "plan", "policies", "version", "trace info", "trace make"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(sterna: Sterna, name: str) -> None:
    run = sterna(*name.split(), "--help")
    assert run.code == 0
    assert "Example" in run.out
    assert f"sterna {name}" in run.out
    assert "--json" in run.out


def test_help_loads_nothing_heavy() -> None:
    heavy = ("numpy", "scipy", "rich", "plotly", "yaml", "msgspec")
    code = (
        "import sys; from sterna.cli.main import main; main(['--help']); "
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_no_command_at_all_shows_the_help(sterna: Sterna) -> None:
    run = sterna()
    assert "simulate" in run.out + run.err
    assert "Traceback" not in run.err


def test_the_version_is_returned(sterna: Sterna) -> None:
    assert sterna("version").out == f"sterna {__version__}\n"
    assert sterna("--version").out == f"sterna {__version__}\n"
    assert sterna("version", "--json").document == {"version": __version__}


def test_policies_are_listed_with_their_parameters(sterna: Sterna) -> None:
    out = sterna("policies").out
    for word in ("elastic-tiresias", "AFS-L", "threshold=3600.0", "topology", "preempt=true"):
        assert word in out
    listed = sterna("policies", "--json").document
    assert {rule["name"] for rule in listed["policy"]} >= {"fifo", "easy", "conservative", "tiresias", "dragon"}
    assert len(listed["placement"]) == 5


@pytest.mark.parametrize("kind", RuleKind)
def test_rules_are_listed_with_the_option_that_takes_them(sterna: Sterna, kind: RuleKind) -> None:
    flag = f"--{kind.value.replace('_', '-')}"
    questions = [line for line in sterna("policies").out.splitlines() if f"{flag} of " in line]
    assert len(questions) == 1
    asks, _, does_without = questions[0].partition(", not of ")
    for command in ("simulate", "plan", "up", "operator"):
        takes_it = f"{flag} " in sterna(command, "--help").out
        assert (f" {command}" in asks) == takes_it, command
        assert not (takes_it and command in does_without), command


def test_a_plan_is_printed_as_a_table_or_as_json(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "nodes: [{name: n1, gpus: 4}]\n"
        "jobs:\n"
        "  - {name: a, min: 1, max: 4, remaining: 1e3, running: {n1: 1}}\n"
        "  - {name: b, submit: 1, workers: 2, speedup: [1, 1.1, 3]}\n"
    )
    run = sterna("plan", "-f", path, "--policy", "elastic-fifo", "--json")
    assert run.document["allocation"] == {"a": 2, "b": 2}
    assert run.document["placement"] == {"a": {"n1": 2}, "b": {"n1": 2}}
    assert run.err.startswith("note: The speed-up curve of job 'b'")
    table = sterna("plan", "-f", path, "--policy", "elastic-fifo").out
    assert "1 -> 2" in table
    assert "started with 2 workers." in table


def test_a_plan_shows_parameter_servers_where_there_are_any(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: [{name: n1, gpus: 4}]\njobs: [{name: a, workers: 2}]\n")
    assert "parameter servers" not in sterna("plan", "-f", path, "--policy", "fifo").out
    path.write_text("nodes: [{name: n1, gpus: 4}]\njobs: [{name: a, workers: 2, ps: {replicas: 3}}, {name: b}]\n")
    lines = sterna("plan", "-f", path, "--policy", "fifo").out.splitlines()
    assert lines[0].split() == ["job", "workers", "nodes", "parameter", "servers", "why"]
    assert "n1: 2  n1: 3" in lines[2]


def test_a_made_trace_can_be_looked_at_and_replayed(sterna: Sterna, tmp_path: Path) -> None:
    path = tmp_path / "made.csv.gz"
    made = sterna("trace", "make", "bursty", "--jobs", "30", "--seed", "3", "--elastic", "1x:2x", "-o", path)
    assert made.code == 0
    info = sterna("trace", "info", path, "--json").document
    assert info["jobs"] == 30
    assert info["elastic_jobs"] == 30
    assert "bursty" not in info["format"]
    assert "30" in sterna("trace", "info", path).out
    run = sterna("simulate", "--trace", path, "--nodes", "2x8", "--policy", "afs-l", "--json")
    assert run.document["jobs"] == 30


def test_a_trace_goes_to_stdout_when_no_file_is_named(sterna: Sterna) -> None:
    plain = sterna("trace", "make", "fixed", "--jobs", "2", "--gap", "10", "--models", "none").out
    assert plain.splitlines()[0] == "job,submit_s,workers,duration_s"
    rows = sterna("trace", "make", "fixed", "--jobs", "2", "--gap", "10", "--json").document["rows"]
    assert [row["submit_s"] for row in rows] == [0, 10]


def test_the_same_seed_makes_the_same_trace(sterna: Sterna) -> None:
    asked = ("trace", "make", "poisson", "--jobs", "5", "--seed")
    assert sterna(*asked, "1").out == sterna(*asked, "1").out != sterna(*asked, "2").out


BREAKING = [
    (KeyboardInterrupt(), 130, ""),
    (Bug("node n1 would be over-committed"), 1, "(node n1 would be over-committed); please report it"),
    (ZeroDivisionError("oh"), 1, "(ZeroDivisionError: oh); please report it"),
    (MemoryError(), 2, "not enough memory"),
    (OSError(28, "No space left on device", "out.html"), 2, "out.html could not be written: No space left on device"),
]


@pytest.mark.parametrize(
    ("error", "code", "sentence"), BREAKING, ids=[type(error).__name__ for error, _, _ in BREAKING]
)
def test_whatever_breaks_is_one_sentence(
    sterna: Sterna, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, sentence: str
) -> None:
    def broken(arguments: list[str]) -> int:
        raise error

    monkeypatch.delenv("STERNA_DEBUG", raising=False)
    monkeypatch.setattr(command_line, "_run", broken)
    run = sterna("version")
    assert run.code == code
    assert sentence in run.err
    assert run.err.count("\n") <= 1


def test_a_closed_pipe_is_no_error() -> None:
    code = "from sterna.cli.main import main; import sys; sys.exit(main(['trace', 'make', 'fixed', '--jobs', '5000']))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


CLOSED = ["policies", "version", "--help", "trace make fixed --json"]
STERNA = "import sys; from sterna.cli.entry import sterna; sys.exit(sterna())"


def in_a_shell(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command line, with `sterna` being the one of this source tree."""
    program = f"{sys.executable} -W ignore -c '{STERNA}'"
    line = command.replace("sterna", program, 1)
    return subprocess.run(["sh", "-c", line, "sh", *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", CLOSED)
def test_a_closed_standard_output_is_no_error(command: str) -> None:
    done = in_a_shell(f"sterna {command} >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_comes_from_an_input_that_is_closed() -> None:
    done = in_a_shell("sterna plan -f - --policy fifo <&-")
    assert done.returncode == 2
    assert done.stderr == "sterna: -: found nothing, expected a description with nodes and jobs.\n"


def test_an_input_without_an_end_is_refused() -> None:
    done = in_a_shell("yes 'a: 1' | sterna plan -f - --policy fifo")
    assert done.returncode == 2
    assert done.stderr == "sterna: -: this holds more than 64 MiB, which is not read; give a smaller file.\n"


def test_an_error_without_standard_error_is_not_written_to_standard_output() -> None:
    done = in_a_shell("sterna plan -f missing.yaml --policy fifo 2>&-")
    assert (done.returncode, done.stdout) == (2, "")


def test_an_output_that_takes_no_more_is_named() -> None:
    done = in_a_shell("sterna policies > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("sterna: The standard output could not be written: No space left on device; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("sterna trace make fixed --jobs 500 -o $1/made.csv", "-o {0}/made.csv: this cannot be written (File too"),
        (
            "sterna simulate --trace $2 --nodes 2x8 --policy fifo --journal $1/run.jsonl",
            "The journal '{0}/run.jsonl' cannot be written: File too large",
        ),
    ],
)
def test_a_file_that_takes_no_more_is_named(trace: Path, tmp_path: Path, command: str, sentence: str) -> None:
    done = in_a_shell(f"ulimit -f 1; {command}", tmp_path, trace)
    assert done.returncode == 2
    assert done.stderr.startswith(f"sterna: {sentence.format(tmp_path)}")
    assert done.stderr.count("\n") == 1


IMPATIENT = """
import sys
from importlib import import_module

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Impatient())
module, _, function = sys.argv[1].partition(":")
sys.exit(getattr(import_module(module), function)())
"""


@pytest.mark.parametrize("program", ["sterna", "kubectl-sterna"])
def test_a_program_that_is_interrupted_while_it_is_loaded_ends_without_a_word(program: str) -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
    start = project["project"]["scripts"][program]
    done = subprocess.run([sys.executable, "-c", IMPATIENT, start], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
