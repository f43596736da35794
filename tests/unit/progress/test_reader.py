"""One reader for each replica turns all its sources into reports of one type, with little I/O per poll."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sterna.model.job import ProgressSpec
from sterna.progress.reader import ProgressReader
from sterna.progress.report import SourceReport
from tests.unit.progress.event_files import event, plain

VODA = (
    "epoch,accuracy,epoch_time_sec,epochs,global_batch_size,local_batch_size,loss,start_time,step_time_sec,steps,"
    "total_epochs,verbose,workers\n"
    "0,0.5,10.0,20,256,64,1.5,2022-01-01 00:00:00.000000,0.1,100,20,1,4\n"
    "1,0.6,11.0,20,256,64,1.2,2022-01-01 00:00:10.000000,0.1,100,20,1,4\n"
)


def _read(folder: Path, spec: ProgressSpec | None = None, **more: Any) -> list[SourceReport]:
    reader = ProgressReader(folder, spec, **more)
    found = reader.poll(is_last=True)
    reader.close()
    return found


def _line(step: int, **metrics: float | None) -> str:
    return json.dumps({"t": 1e9 + step, "step": step, "total": 9, "metrics": metrics, "generation": 3}) + "\n"


def test_the_agent_s_lines_are_reports(tmp_path: Path) -> None:
    (tmp_path / "progress.jsonl").write_text(
        _line(1, loss=0.5) + "{torn\n" + '{"step": "x"}\n[]\n' + _line(2, loss=None)
    )
    assert _read(tmp_path) == [
        SourceReport(1e9 + 1, 1, 9, {"loss": 0.5}, 3, "agent"),
        SourceReport(1e9 + 2, 2, 9, {"loss": None}, 3, "agent"),
    ]


def test_stdout_is_read_only_while_the_agent_is_silent(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("step=1 loss=0.5\n")
    reader = ProgressReader(tmp_path)
    assert [report.source for report in reader.poll()] == ["stdout"]
    (tmp_path / "progress.jsonl").write_text(_line(2))
    with (tmp_path / "out.log").open("a") as log:
        log.write("step=2 loss=0.4\n")
    assert [report.source for report in reader.poll(is_last=True)] == ["agent"]
    reader.close()


def test_a_declared_pattern_is_read_beside_the_agent(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("cost 0.5\n")
    (tmp_path / "progress.jsonl").write_text(_line(2))
    found = _read(tmp_path, ProgressSpec({"stdout": [r"cost (?P<cost>\S+)"]}))
    assert [report.source for report in found] == ["agent", "stdout"]


def test_redrawn_bars_are_lines(tmp_path: Path) -> None:
    bars = "".join(f"\r {step}0%|## | {step}/10 [00:01<00:01, 1it/s, loss=0.{step}]" for step in range(1, 4))
    (tmp_path / "out.log").write_text(bars)
    assert [report.step for report in _read(tmp_path)] == [1, 2, 3]


def test_a_total_that_the_job_declares_fills_in_for_one_it_does_not_print(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("step=1 loss=0.5\n")
    assert _read(tmp_path, ProgressSpec(total=70))[0].total == 70


def test_lines_without_a_time_are_spread_over_the_time_since_the_last_read(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text("step=1 loss=9\n")
    os.utime(log, (1000, 1000))
    reader = ProgressReader(tmp_path, clock=lambda: 5000.0)
    assert reader.poll()[0].at == 1000
    positions = reader.positions
    reader.close()
    with log.open("a") as file:
        file.write("".join(f"step={step} loss=1\n" for step in range(2, 6)))
    os.utime(log, (2000, 2000))
    back = ProgressReader(tmp_path, positions=positions, clock=lambda: 5000.0)
    assert [report.at for report in back.poll()] == [1250, 1500, 1750, 2000]
    back.close()


def test_of_a_flood_of_lines_the_newest_and_some_others_are_read(tmp_path: Path) -> None:
    lines = [f"step={step} loss=1\nheartbeat {step} ok\n" for step in range(8000)]
    (tmp_path / "out.log").write_text("".join(lines))
    steps = [report.step for report in _read(tmp_path)]
    assert steps[-1] == 7999
    assert len(steps) <= 40
    assert steps == sorted(steps, key=lambda step: step or 0)


CSVS = [
    ("Steps,Loss,Accuracy\n10,0.5,0.9\n", [(10, None, {"Loss": 0.5, "Accuracy": 0.9})]),
    ("cpu,total_iteration,num_iteration,epoch_time\n1.5,900,30,2.5\n", [(30, 900, {"cpu": 1.5, "epoch_time": 2.5})]),
    ("time,step,metric\n1600000000.5,3,0.25\n", [(3, None, {"metric": 0.25})]),
    ("1600000000.5,3,0.25\n1600000001.5,4,0.2\n", [(3, None, {"value": 0.25}), (4, None, {"value": 0.2})]),
    ("5,0.5\n", [(5, None, {"value": 0.5})]),
    ("step;loss\n1;nan\n2;x\nbroken\n3;0.5\n", [(1, None, {"loss": None}), (2, None, {}), (3, None, {"loss": 0.5})]),
    ("\ufeffstep,name,loss\n1,\"a, b\",0.5\n", [(1, None, {"loss": 0.5})]),
    ("step,loss\n", []),
    ("no csv at all\n\x00\xff\n", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rows"), CSVS, ids=[text.partition("\n")[0][:20] for text, _ in CSVS])
def test_a_csv_file_is_read_by_its_columns(tmp_path: Path, text: str, rows: list[tuple[object, ...]]) -> None:
    (tmp_path / "m.csv").write_text(text, encoding="utf-8")
    found = _read(tmp_path, ProgressSpec({"csv": "m.csv"}))
    assert [(report.step, report.total, report.metrics) for report in found] == rows


def test_voda_s_rows_are_epochs_that_are_over(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(VODA)
    first, second = _read(tmp_path, ProgressSpec({"csv": "m.csv"}))
    assert (first.step, first.total, second.step) == (1, 20, 2)
    assert first.metrics == {
        "accuracy": 0.5,
        "epoch_time_sec": 10.0,
        "loss": 1.5,
        "step_time_sec": 0.1,
        "workers": 4.0,
    }
    assert second.at - first.at == 11.0


def test_a_csv_file_is_relative_to_the_working_folder_and_may_be_truncated(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    table = work / "m.csv"
    table.write_text("step,loss\n1,0.5\n2,0.4\n")
    spec = ProgressSpec({"csv": "m.csv"})
    reader = ProgressReader(tmp_path, spec, work)
    assert [report.step for report in reader.poll()] == [1, 2]
    positions = reader.positions
    table.write_text("loss,step\n0.9,1\n")
    assert [report.metrics for report in reader.poll()] == [{"loss": 0.9}]
    reader.close()
    table.write_text("step,loss\n1,0.5\n2,0.4\n3,0.3\n")
    assert [report.step for report in _read(tmp_path, spec, working_dir=work, positions=positions)] == [3]


def test_a_folder_of_tensorboard_s_is_read(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.out.tfevents.1.host").write_bytes(event(4, plain("loss", 0.5)))
    spec = ProgressSpec({"tensorboard": "runs"}, total=9)
    reader = ProgressReader(tmp_path, spec)
    assert reader.poll() == [SourceReport(1.7e9, 4, 9, {"loss": 0.5}, 0, "tensorboard")]
    positions = reader.positions
    reader.close()
    assert _read(tmp_path, spec, positions=positions) == []


def test_a_replica_that_writes_nothing_or_nonsense_has_no_reports(tmp_path: Path) -> None:
    assert _read(tmp_path / "missing", ProgressSpec({"csv": "x.csv", "tensorboard": "runs"})) == []
    for name in ("progress.jsonl", "out.log", "x.csv"):
        (tmp_path / name).write_bytes(bytes(range(256)) * 50)
    assert _read(tmp_path, ProgressSpec({"csv": "x.csv"})) == []


def test_a_pattern_that_slipped_through_is_noted_and_the_built_in_ones_are_used(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("step=1 loss=0.5\n")
    reader = ProgressReader(tmp_path, ProgressSpec({"stdout": ["(broken"]}))
    assert [report.step for report in reader.poll()] == [1]
    assert "built-in patterns" in reader.notices[0]
    reader.close()
