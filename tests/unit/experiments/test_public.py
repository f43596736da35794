"""The public surface: `import sterna`, its arguments, its results, its errors."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from pathlib import Path

import pytest

import sterna
from sterna.experiments.options import SimulationOptions, make_scenario


@pytest.fixture(scope="module")
def trace() -> sterna.Trace:
    return sterna.Trace.poisson(jobs=40, seed=7, mix=sterna.Mix(mean_duration_seconds=300))


@pytest.fixture(scope="module")
def result(trace: sterna.Trace) -> sterna.Result:
    return sterna.simulate(trace, nodes="2x8", policy="srjf", elastic="1x:2x", restart_cost=30)


def test_every_public_name_is_importable_and_listed() -> None:
    for name in sterna.__all__:
        assert name in dir(sterna)
        assert getattr(sterna, name) is not None
    with pytest.raises(AttributeError, match="'sterna' has no attribute 'simulat'"):
        sterna.simulat  # type: ignore[attr-defined] # noqa: B018


def test_import_of_sterna_loads_nothing_else() -> None:
    code = "import sys, sterna; print([name for name in sys.modules if name.startswith(('numpy', 'sterna.'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_simulate_takes_every_option_of_a_scenario_and_documents_each() -> None:
    options = set(SimulationOptions.__annotations__)
    assert options == set(inspect.signature(make_scenario).parameters) - {"trace", "nodes"}
    assert [name for name in options if name not in str(sterna.simulate.__doc__)] == []


def test_result_has_summary_and_one_row_per_job(trace: sterna.Trace, result: sterna.Result) -> None:
    jobs = result.jobs("columns")
    assert result.summary["jobs"] == 40
    assert jobs["job"] == list(trace.name)
    assert set(jobs["state"]) == {"finished"}
    assert sum(jobs["jct_s"]) / 40 == pytest.approx(result.number("avg_jct_s"), abs=0.001)
    assert repr(result).startswith("Result(srjf, 2 nodes of 8 devices, 16 devices in all: 40 jobs, mean ")


def test_jobs_are_a_frame_of_the_library_that_is_asked_for(
    result: sterna.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("polars")
    monkeypatch.setattr(module, "DataFrame", lambda columns: ("frame", columns), raising=False)
    monkeypatch.setitem(sys.modules, "polars", module)
    assert result.jobs("polars") == ("frame", result.jobs("columns"))


@pytest.mark.parametrize(
    ("library", "sentence"),
    [
        ("pandas", "pandas is not installed: run pip install pandas, or ask for 'columns', which needs no library."),
        ("panda", "'panda' makes no data frames; did you mean 'pandas'?"),
    ],
)
def test_frame_that_cannot_be_made_is_a_user_error(
    result: sterna.Result, monkeypatch: pytest.MonkeyPatch, library: str, sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sterna.UserError) as error:
        result.jobs(library)
    assert str(error.value) == sentence


def test_compare_gives_a_row_and_a_line_for_every_policy(trace: sterna.Trace) -> None:
    comparison = sterna.compare(trace, "1x8", policies=["srjf", "tiresias"], cores=1)
    table = comparison.table("columns")
    assert table["policy"] == ["fifo:preempt=false", "srjf", "tiresias"]
    assert table["ratio"][0] == 1.0
    assert [line.name for line in comparison.plot("completion").data] == table["policy"]
    assert list(comparison.plot().data[0].x) == table["policy"]


@pytest.mark.parametrize("what", ["completion", "utilization", "queue", "allocation"])
def test_result_has_a_plot_by_name(result: sterna.Result, what: str) -> None:
    assert len(result.plot(what).data) == 1


def test_plot_without_plotly_names_the_package_to_install(
    result: sterna.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(sterna.UserError, match=r"plot needs plotly, .*: run pip install 'sterna\[report\]'\."):
        result.plot()
    with pytest.raises(sterna.UserError, match=r"There is no plot 'queu': did you mean 'queue'\?"):
        result.plot("queu")


def test_records_and_frames_are_traces_as_the_same_file_is(tmp_path: Path) -> None:
    records = [
        {"job": "b", "submit_s": 5, "workers": 2, "duration_s": 60.5, "model": "bert"},
        {"job": "a", "submit_s": 0, "workers": 1, "duration_s": 30, "model": float("nan")},
    ]
    file = tmp_path / "jobs.csv"
    file.write_text("job,submit_s,workers,duration_s,model\nb,5,2,60.5,bert\na,0,1,30,\n")
    frame = {name: [row[name] for row in records] for name in records[0]}
    traces = [sterna.Trace.load(file), sterna.Trace.from_records(records), sterna.Trace.from_frame(frame)]
    assert {trace.name for trace in traces} == {("a", "b")}
    assert {trace.model for trace in traces} == {("", "bert")}
    assert {tuple(trace.duration_seconds) for trace in traces} == {(30.0, 60.5)}


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([], "records: the trace has no jobs."),
        ([{"job": "a", "workers": 1, "duration_s": 3}], "records: there is no column 'submit_s'; add it."),
        (
            [{"job": "a", "submit_s": 0, "workers": "many", "duration_s": 3}],
            "records, line 1, column 'workers': found 'many', expected a whole number of at least 1.",
        ),
    ],
)
def test_wrong_records_are_named(records: list[dict[str, object]], sentence: str) -> None:
    with pytest.raises(sterna.UserError) as error:
        sterna.Trace.from_records(records)
    assert str(error.value) == sentence


def test_frame_that_is_none_is_named() -> None:
    with pytest.raises(sterna.UserError, match="found list, expected a data frame or a mapping of columns"):
        sterna.Trace.from_frame([{"job": "a"}])
    with pytest.raises(sterna.UserError, match="frame: the columns differ in length"):
        sterna.Trace.from_frame({"job": ["a"], "submit_s": []})


def test_errors_name_arguments_instead_of_flags(trace: sterna.Trace) -> None:
    with pytest.raises(sterna.UserError, match=r"^restart_cost -1: give seconds, a number of at least 0"):
        sterna.simulate(trace, "2x8", "srjf", restart_cost=-1)
    with pytest.raises(sterna.UserError, match=r"^cores 0: use at least one\.$"):
        sterna.compare(trace, "2x8", cores=0)
    with pytest.raises(sterna.UserError, match=r"^There is no policy 'srj': did you mean 'srjf'\?$"):
        sterna.simulate(trace, "2x8", "srj")


def test_cluster_has_racks_that_cost_speed() -> None:
    trace = sterna.Trace.from_records([{"job": "wide", "submit_s": 0, "workers": 8, "duration_s": 100}])
    racks = sterna.Cluster("4x2", racks=4)
    assert (len(racks), repr(racks)) == (4, "Cluster('4x2', racks=4)")
    slow = sterna.simulate(trace, racks, "fifo", cross_node_penalty=0.2)
    fast = sterna.simulate(trace, "4x2", "fifo", cross_node_penalty=0.2)
    assert slow.times.completion.tolist() == pytest.approx([100 / 0.8 / 0.8])
    assert fast.times.completion.tolist() == pytest.approx([100 / 0.8])
    with pytest.raises(sterna.UserError, match=r"^racks 9: nodes 4x2 has fewer nodes than racks"):
        sterna.Cluster("4x2", racks=9)
