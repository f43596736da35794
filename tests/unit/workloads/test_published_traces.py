"""The published files themselves, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sterna.errors import UserError
from sterna.workloads.formats import load_trace

JOBS = {
    "philly/philly_jobs.csv": ("philly-csv", 82_247),
    "itp/cluster01.csv": ("itp", 1_595),
    "itp/cluster04.csv": ("itp", 15_802),
    "bench/b1k.csv": ("bench", 1_000),
    "bench/b10k.csv": ("bench", 10_000),
    "helios/helios_venus_2vc_sept.csv": ("helios-slice", 1_867),
    "tiresias/60_job.csv": ("tiresias", 60),
}


@pytest.mark.parametrize("file", JOBS)
def test_every_job_of_the_file_is_in_the_trace(published: Path, file: str) -> None:
    trace = load_trace(published / file)
    assert (trace.kind, len(trace)) == JOBS[file]
    assert trace.submit_seconds[0] == 0
    assert (np.diff(trace.submit_seconds) >= 0).all()


def test_b1k_starts_as_itp_cluster04_does(published: Path) -> None:
    trace = load_trace(published / "bench" / "b1k.csv")
    assert (trace.name[0], trace.submit_seconds[0], trace.workers[0]) == ("job-00001", 0.0, 16)
    assert trace.duration_seconds[0] == 288476.0
    itp = load_trace(published / "itp" / "cluster04.csv").take(range(1_000))
    assert np.array_equal(np.sort(itp.duration_seconds), np.sort(trace.duration_seconds))


def test_philly_spans_109_days_of_15_virtual_clusters(published: Path) -> None:
    trace = load_trace(published / "philly" / "philly_jobs.csv")
    assert trace.submit_seconds[-1] == 9_408_690
    assert len(set(trace.pool)) == 15
    assert int(trace.workers.max()) == 128


def test_the_helios_slice_fits_its_window_of_26_days(published: Path) -> None:
    trace = load_trace(published / "helios" / "helios_venus_2vc_sept.csv")
    assert 25 * 86_400 < trace.submit_seconds[-1] < 26 * 86_400


def test_voda_s_run_is_no_trace_because_it_has_no_durations(published: Path) -> None:
    with pytest.raises(UserError, match="native needs 'duration_s' as well"):
        load_trace(published / "voda" / "poisson24.csv")
