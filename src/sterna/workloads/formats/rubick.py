"""Rubick's workloads (MLSys'25): model, GPUs, duration with the execution plan that the user chose, and steps.

Plan, CPUs, bandwidth, steps and service class are not used: the duration is that with the requested GPUs. Models are
given the profiles that Rubick published with them, not those of the same name by others.
"""

from __future__ import annotations

from sterna.workloads.formats.layout import CsvLayout

JOBS = CsvLayout(
    kind="rubick",
    job="name",
    submit="submission_time",
    workers="num_gpus",
    duration="duration",
    model="application",
    needs=("exec_plan",),
    model_names={"bert": "bert_a800", "gpt2": "gpt2_a800"},
)
