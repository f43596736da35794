"""Alibaba PAI, cluster-trace-gpu-v2020 (Weng et al., NSDI'22): the task table, and the flat table of its simulator.

Each task with a GPU becomes a job of its own: `inst_num` workers with `plan_gpu` percent of a device each. Tasks are
not joined to jobs again, so a chief beside its workers is a second job, and the start of a task stands for its
submission (the job table, which has the true one, lacks the devices). In the simulator's table `num_gpu` is already
in devices, and per instance too.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterna.errors import UserError
from sterna.workloads.formats.layout import CsvLayout

TASKS = CsvLayout(
    kind="alibaba-tasks",
    job="job_name",
    submit="start_time",
    end="end_time",
    workers="inst_num",
    devices="plan_gpu",
    device_units=100,
    category="task_name",
    status="status",
)

JOBS = CsvLayout(
    kind="alibaba-jobs",
    job="job_id",
    submit="submit_time",
    duration="duration",
    workers="num_inst",
    devices="num_gpu",
    category="group",
    user="user",
)

_TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
_JOB_TABLE_WIDTH = 6
_STATUS = 3
_STATUSES = frozenset({"Terminated", "Failed", "Running", "Waiting"})


def absent_header(source: str, first: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns of a task table, which has no header line, if the first record looks like a task."""
    if len(first) <= _STATUS or first[_STATUS].strip() not in _STATUSES:
        return None
    if len(first) == _JOB_TABLE_WIDTH:
        raise UserError(f"{source}: PAI's job table does not say how many GPUs a job has; give pai_task_table.csv.")
    return _TASK_COLUMNS if len(first) == len(_TASK_COLUMNS) else None
