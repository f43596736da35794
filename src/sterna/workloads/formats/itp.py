"""Microsoft ITP (published with ElasticFlow, ASPLOS'23): job, seconds since the trace's start, duration, GPUs.
Nothing else is known of these jobs, neither user nor model."""

from __future__ import annotations

from sterna.workloads.formats.layout import CsvLayout

JOBS = CsvLayout(kind="itp", job="job_id", submit="submission_time", workers="num_gpu", duration="duration")
