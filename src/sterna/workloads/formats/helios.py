"""SenseTime Helios (Hu et al., SC'21): the published `cluster_log.csv`, and slices of it in a simulator's flat schema.

The slices are rebased: their `submit_time` counts microseconds from the start of the window (26 days of them end at
2.2e12), while `duration_s` is in seconds. Half of the published jobs use no GPU and are left out.
"""

from __future__ import annotations

from sterna.workloads.formats.layout import CsvLayout

LOG = CsvLayout(
    kind="helios",
    job="job_id",
    submit="submit_time",
    is_dated=True,
    workers="gpu_num",
    duration="duration",
    category="jobname",
    user="user",
    pool="vc",
    status="state",
)

SLICE = CsvLayout(
    kind="helios-slice",
    job="job_id",
    submit="submit_time",
    submit_units_per_second=1e6,
    workers="num_chips",
    duration="duration_s",
    category="class",
    user="user",
    pool="tenant",
    status="final_status",
)
