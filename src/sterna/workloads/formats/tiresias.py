"""Tiresias' job files (Gu et al., NSDI'19): a model by name, GPUs, duration. Its iteration counts and intervals are
not used: the duration is already that with the requested GPUs."""

from __future__ import annotations

from sterna.workloads.formats.layout import CsvLayout

JOBS = CsvLayout(
    kind="tiresias",
    job="job_id",
    submit="submit_time",
    workers="num_gpu",
    duration="duration",
    model="model_name",
)
