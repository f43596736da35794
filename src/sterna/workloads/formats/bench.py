"""Benchmarks of schedulers: three columns, `submission_time,num_gpu,duration`. Jobs have no ids and are numbered in the
order of the file."""

from __future__ import annotations

from sterna.workloads.formats.layout import CsvLayout

JOBS = CsvLayout(kind="bench", submit="submission_time", workers="num_gpu", duration="duration")
