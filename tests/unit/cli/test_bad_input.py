"""Bad input: one sentence, exit code 2, never a stack trace, and nothing on stdout."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sterna

OPTIONS = [
    (["--policy", "fiffo"], "There is no policy 'fiffo': did you mean 'fifo'?"),
    (["--policy", "fifo:prempt=1"], "no parameter 'prempt': did you mean 'preempt'?"),
    (["--policy", "fifo:preempt=maybe"], "the value must be true or false"),
    (["--policy", "tiresias:threshold=-1"], "at least 0"),
    (["--policy", "tiresias:threshold=nan"], "at least 0"),
    (["--placement", "stey"], "There is no placement 'stey': did you mean 'stay'?"),
    (["--nodes", "8x"], "'8x' is not of the form COUNTxDEVICES"),
    (["--nodes", "0x8"], "at least one node"),
    (["--nodes", "-1x8"], "not of the form"),
    (["--nodes", "99999999999x1"], "99,999,999,999 nodes are more than the simulator takes; write at most 1,000,000."),
    (["--nodes", "1_0x8"], "'1_0x8' is not of the form COUNTxDEVICES"),
    (["--policy", "tiresias:threshold=1_000"], "In 'tiresias:threshold=1_000' the value must be a number."),
    (["--policy", "elastic-tiresias:compact=٣"], "the value must be a whole number."),
    (["--racks", "0_1"], "--racks 0_1: give a whole number. See 'sterna simulate --help'."),
    (["--restart-cost", "٣"], "--restart-cost ٣: give a number."),
    (["--fail", "node0@1_0"], "'1_0' is not a number of seconds"),
    (["--fail", "\u0660@1"], "there is no node '\u0660'"),
    (["--knowledge", "noisy:0_1"], "'0_1' is not a number from 0"),
    (["--elastic", "1x:1_0x"], "--elastic 1x:1_0x: write"),
    (["--nodes", "٣x٤"], "'٣x٤' is not of the form COUNTxDEVICES"),
    (["--trace", ""], "The path of a file is empty; give a CSV or JSON file."),
    (["--trace", "missing.csv"], "missing.csv: there is no such file"),
    (["--format", "phily-csv"], "'phily-csv' is not a format of traces"),
    (["--restart-cost", "-1"], "--restart-cost -1"),
    (["--restart-cost", "nan"], "--restart-cost nan"),
    (["--restart-cost", "inf"], "--restart-cost inf"),
    (["--restart-cost", "1e308"], "--restart-cost 1e+308: give seconds, a number of at least 0 and at most 1e15."),
    (["--fail", "node0@1e300"], "'1e300' is not a number of seconds from 0 to 1e15"),
    (["--rescale-cost", "-1"], "--rescale-cost -1"),
    (["--checkpoint-every", "inf"], "--checkpoint-every inf"),
    (["--can-save", "1.5"], "--can-save 1.5"),
    (["--cross-node-penalty", "1"], "--cross-node-penalty 1"),
    (["--cross-node-penalty", "nan"], "--cross-node-penalty nan"),
    (["--racks", "0"], "--racks 0"),
    (["--seed", "-1"], "--seed -1"),
    (["--limit", "0"], "--limit 0"),
    (["--limit", "few"], "--limit few: give a whole number. See 'sterna simulate --help'."),
    (["--restart-cost", "much"], "--restart-cost much: give a number."),
    (["--racks", "99"], "--nodes 2x8 has fewer nodes than racks; give at most 2."),
    (["--policy", "fifo:"], "In 'fifo:' nothing follows a colon"),
    (["--policy", "fifo,srjf"], "to see several side by side use sterna compare --policies fifo,srjf."),
    (["--policy", "all"], "use sterna compare --policies all."),
    (["--policy", "fifo:preempt=true:preempt=false"], "the parameter 'preempt' is given twice"),
    (["--elastic", "4x"], "--elastic 4x"),
    (["--elastic", "٣x:٤x"], "--elastic ٣x:٤x: write"),
    (["--elastic", "2x:4x"], "--elastic 2x:4x"),
    (["--speedups", "missing.yaml"], "missing.yaml: there is no such file"),
    (["--requested-time", "0"], "--requested-time 0: give a multiple of the duration above 0, e.g. 2."),
    (["--requested-time", "nan"], "--requested-time"),
    (["--speedups", "linear"], "--speedups linear: it takes a YAML file of curves by model; write --speedup linear."),
    (["--speedup", "curves.yaml"], "curves by model are given with --speedups curves.yaml."),
    (["--speedup", "liner"], "--speedup liner is unknown; did you mean 'linear'?"),
    (["--speedup", "power:2"], "--speedup power:2: give an exponent above 0 and of at most 1, e.g. power:0.8."),
    (["--speedup", "power"], "give an exponent above 0 and of at most 1, e.g. power:0.8."),
    (["--speedup", "power:0"], "give an exponent above 0 and of at most 1, e.g. power:0.8."),
    (["--vc", "rad"], "has no such virtual cluster; did you mean 'red'? It has blue, red."),
    (
        ["--fail", "node5@1"],
        "there is no node 'node5'; the nodes are node0 to node1, so write for example node1@3600+600.",
    ),
    (["--fail", "node0@1+"], "write NODE@SECONDS+SECONDS"),
    (["--fail", "node0"], "write NODE@SECONDS+SECONDS"),
    (["--fail", "node0@-1"], "'-1' is not a number of seconds"),
    (["--fail", "node0@1+0"], "lasts longer than 0"),
    (["--fail", "node0@1+2", "--placement", "none"], "--placement none only counts devices"),
    (["--mtbf", "0"], "--mtbf 0"),
    (["--mtbf", "1e-9"], "faults are to be expected"),
    (["--mttr", "5"], "add --mtbf"),
    (["--report", "missing/out.html"], "there is no folder 'missing'"),
    (["--report", "/proc/x.html"], "--report /proc/x.html: no new files can be made there; choose another place."),
    (["--jobs-csv", "/dev/full"], "--jobs-csv /dev/full: this cannot be written (No space left on device)"),
    (["--journal", "/dev/full"], "The journal '/dev/full' cannot be written: No space left on device"),
    (["--jobs-csv", "."], "this is a folder"),
    (["--report", "jobs.csv"], "--report jobs.csv: this is the file of --trace, which would be lost"),
    (["--jobs-csv", "./x", "--journal", "x"], "--journal x: this is the file of --jobs-csv"),
    (["--elastic", "1x:999999999x"], "--elastic 1x:1e+09x: a job may have at most 1,000,000,000 workers"),
    (["--journal", "missing/j"], "missing/j"),
    (["--nonsense"], "No such option"),
    (["--polcy", "fifo"], "No such option '--polcy'; did you mean '--policy'? See 'sterna simulate --help'."),
    (["--overwrite"], "--overwrite replaces a journal, but none is written: add --journal FILE."),
]


@pytest.mark.parametrize(("options", "sentence"), OPTIONS, ids=[" ".join(options) for options, _ in OPTIONS])
def test_a_wrong_option_is_one_sentence(
    sterna: Sterna, trace: Path, options: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    run = sterna("simulate", "--trace", trace, "--nodes", "2x8", "--policy", "fifo", *options)
    assert run.code == 2
    assert sentence in run.err
    assert_one_sentence(run.err)
    assert run.out == ""
    assert [path.name for path in trace.parent.iterdir()] == [trace.name]


HEAD = "job,submit_s,workers,duration_s,min_workers,max_workers\n"
TRACES = [
    ("", "jobs.csv"),
    (HEAD, "the trace has no jobs"),
    ("job,submit_s,workers\na,0,1\n", "'duration_s'"),
    (f"{HEAD}a,0,1,x,,\n", "line 2, column 'duration_s'"),
    (f"{HEAD}a,0,1,-5,,\n", "line 2, column 'duration_s'"),
    (f"{HEAD}a,0,1,nan,,\n", "line 2, column 'duration_s'"),
    (f"{HEAD}a,inf,1,5,,\n", "line 2, column 'submit_s'"),
    (f"{HEAD}a,0,1,5,3,2\n", "line 2: min_workers 3 is above max_workers 2"),
    (f"{HEAD}a,0,1,5,,\na,1,1,5,,\n", "line 3, column 'job': the name 'a' is taken by line 2"),
    (f"{HEAD}a,0,1\n", "line 2"),
]


@pytest.mark.parametrize(("contents", "sentence"), TRACES, ids=[sentence for _, sentence in TRACES])
def test_a_wrong_trace_is_one_sentence(sterna: Sterna, tmp_path: Path, contents: str, sentence: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(contents)
    for asked in (["simulate", "--policy", "fifo"], ["compare", "--cores", "1"]):
        run = sterna(*asked, "--trace", path, "--nodes", "2x8")
        assert run.code == 2
        assert sentence in run.err
        assert_one_sentence(run.err)
    assert sterna("trace", "info", path).code == 2


DESCRIPTIONS = [
    ("", "found nothing, expected a description with nodes and jobs"),
    ("[1, 2]", "expected a description with nodes and jobs"),
    ("nodes: [", ": this is not YAML (did not find expected node content)"),
    ("nodes: []\nnodes: []", "line 2, column 1: this is not YAML (the key 'nodes' appears twice)"),
    ("nodes: [{name: n, gpus: 1}]\njobs: [{name: a, submit: -1}]", "job 'a', key 'submit': found -1"),
    ("? {a: 1}\n: 2", "this is not YAML (found unhashable key)"),
    ("nodes: [{name: n, gpus: .inf}]", "node 'n', key 'gpus': found inf"),
]


@pytest.mark.parametrize(("contents", "sentence"), DESCRIPTIONS, ids=[sentence for _, sentence in DESCRIPTIONS])
def test_a_wrong_description_is_one_sentence(sterna: Sterna, tmp_path: Path, contents: str, sentence: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(contents)
    run = sterna("plan", "-f", path, "--policy", "fifo", "--json")
    assert run.code == 2
    assert run.err.startswith(f"sterna: {path}")
    assert sentence in run.err
    assert_one_sentence(run.err)


COMMANDS = [
    (["simulat"], "No such command 'simulat'; did you mean 'simulate'? See 'sterna --help'."),
    (["plann"], "No such command 'plann'; did you mean 'plan'? See 'sterna --help'."),
    (["trace", "mke"], "No such command 'mke'; did you mean 'make'? See 'sterna trace --help'."),
    (["simulate", "--policy", "fifo"], "Missing option '--trace'"),
    (["trace", "make", "poison"], "There is no generator 'poison': did you mean 'poisson'?"),
    (["trace", "make", "fixed", "--window", "3"], "--window does not apply to fixed traces"),
    (["trace", "make", "fixed", "--jobs", "0"], "--jobs: found 0"),
    (["trace", "make", "poisson", "--mean-gap", "-1"], "--mean-gap: found -1, expected a number above 0."),
    (["trace", "make", "fixed", "--workers", "a=b"], "--workers a=b: 'a' is not a number of workers; write NUMBER="),
    (["trace", "make", "fixed", "--workers", "1=2,1=3"], "'1' is there twice"),
    (
        ["trace", "make", "fixed", "--workers", "1=-1"],
        "--workers: found the weight -1, expected a number of at least 0.",
    ),
    (["trace", "make", "fixed", "--models", "bert,"], "there is nothing before a comma, an = or the end"),
    (["trace", "make", "fixed", "--workers", "two"], "'two' is not a number of workers"),
    (["trace", "make", "fixed", "--workers", "٣=1"], "'٣' is not a number of workers"),
    (["trace", "make", "fixed", "--models", "vgg17"], "there is no profile of 'vgg17'"),
    (["trace", "make", "fixed", "--workers", "1=x"], "'x' is not a weight"),
    (["trace", "make", "fixed", "--elastic", "x"], "--elastic x"),
    (["trace", "info", "missing.csv"], "there is no such file"),
    (["plan", "-f", "missing.yaml", "--policy", "fifo"], "there is no such file"),
    (["compare", "--trace", "x", "--nodes", "1x1", "--policies", ","], "--policies is empty"),
    (["compare", "--trace", "x", "--nodes", "1x1", "--policies", "fifo,,srjf"], "remove a comma"),
    (["plan", "-f", sys.executable, "--policy", "fifo"], "give a YAML or JSON file."),
    (["compare", "--trace", "x", "--nodes", "1x1", "--policies", "fifo,srfj"], "did you mean 'srjf'?"),
    (["compare", "--trace", "x", "--nodes", "1x1", "--cores", "0"], "--cores 0"),
]


@pytest.mark.parametrize(("asked", "sentence"), COMMANDS, ids=[" ".join(asked) for asked, _ in COMMANDS])
def test_a_wrong_command_is_one_sentence(sterna: Sterna, asked: list[str], sentence: str) -> None:
    run = sterna(*asked)
    assert run.code == 2
    assert sentence in run.err
    assert_one_sentence(run.err)
    assert run.out == ""


def assert_one_sentence(text: str) -> None:
    assert text.startswith("sterna: ")
    assert text.endswith("\n")
    assert text.count("\n") == 1
    assert text.rstrip().endswith((".", "?"))
    assert "Traceback" not in text
