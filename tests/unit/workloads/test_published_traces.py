"""Published files: the small ones of `tests/data`, and the whole ones where they are present."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sterna.errors import UserError
from sterna.workloads import published
from sterna.workloads.load import load_trace
from sterna.workloads.profiles import curve_of
from tests.published import DATA, large_file

SMALL = {
    "itp/cluster04_first_1000.csv": ("itp", 1_000),
    "bench/b1k.csv": ("bench", 1_000),
    "helios/helios_venus_2vc_sept.csv.gz": ("helios-slice", 1_867),
    "philly/philly_first_200.csv": ("philly-csv", 200),
    "tiresias/60_job.csv": ("tiresias", 60),
    "rubick/workload-base.csv": ("rubick", 406),
}
LARGE = {
    "philly/philly_jobs.csv": ("philly-csv", 82_247),
    "itp/cluster01.csv": ("itp", 1_595),
    "itp/cluster04.csv": ("itp", 15_802),
    "bench/b10k.csv": ("bench", 10_000),
    "rubick/workload-bp.csv": ("rubick", 406),
    "rubick/workload-mt.csv": ("rubick", 406),
}


def _check(path: Path, kind: str, jobs: int) -> None:
    trace = load_trace(path)
    assert (trace.kind, len(trace)) == (kind, jobs)
    assert trace.submit_seconds[0] == 0
    assert (np.diff(trace.submit_seconds) >= 0).all()


@pytest.mark.parametrize("file", SMALL)
def test_trace_has_every_job_of_the_file(file: str) -> None:
    _check(DATA / file, *SMALL[file])


@pytest.mark.parametrize("file", LARGE)
def test_trace_has_every_job_of_the_large_file(file: str) -> None:
    _check(large_file(file), *LARGE[file])


def test_every_file_of_the_data_folder_is_named_with_its_source_and_licence() -> None:
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in readme.splitlines() if line.startswith("| `")]
    assert all(len(row) == 6 and all(map(str.strip, row[1:-1])) for row in rows)
    listed = {path for row in rows for path in DATA.glob(row[1].strip(" `"))}
    assert listed == {path for path in DATA.rglob("*") if path.is_file()} - {DATA / "README.md"}


def test_b1k_has_the_jobs_of_itp_cluster04() -> None:
    trace = load_trace(DATA / "bench" / "b1k.csv")
    assert (trace.name[0], trace.submit_seconds[0], trace.workers[0]) == ("job-00001", 0.0, 16)
    assert trace.duration_seconds[0] == 288476.0
    itp = load_trace(DATA / "itp" / "cluster04_first_1000.csv")
    assert np.array_equal(np.sort(itp.duration_seconds), np.sort(trace.duration_seconds))


def test_philly_spans_109_days_of_15_virtual_clusters() -> None:
    trace = load_trace(large_file("philly/philly_jobs.csv"))
    assert trace.submit_seconds[-1] == 9_408_690
    assert len(set(trace.pool)) == 15
    assert int(trace.workers.max()) == 128


def test_helios_slice_fits_its_window_of_26_days() -> None:
    trace = load_trace(DATA / "helios" / "helios_venus_2vc_sept.csv.gz")
    assert 25 * 86_400 < trace.submit_seconds[-1] < 26 * 86_400


def test_models_of_rubick_have_the_profiles_published_with_them() -> None:
    trace = load_trace(DATA / "rubick" / "workload-base.csv")
    assert set(trace.model) == {"bert_a800", "gpt2_a800", "llama30", "llama7", "roberta", "t5", "vit"}
    assert all(curve_of(model) for model in trace.model)
    assert (trace.name[0], trace.model[0], trace.workers[0], trace.duration_seconds[0]) == (
        "vit-0",
        "vit",
        2,
        3163.091667,
    )


def test_voda_run_is_rejected_because_it_has_no_durations() -> None:
    with pytest.raises(UserError, match="native needs 'duration_s' as well"):
        load_trace(Path(published.__path__[0]) / "voda_poisson24.csv")
