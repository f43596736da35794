"""What a local cluster accepts: a job that could run here, under a name that is safe to use as a folder.

Each refusal is one sentence with what to do next. Manifests are checked where they are read; here is what only this
machine can know, and once more what would be dangerous to believe.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from sterna.backends.local.book import shape_of
from sterna.backends.local.nodes import Slices
from sterna.engine.placing import seat_ps
from sterna.engine.room import Room
from sterna.errors import UserError
from sterna.model.cluster import MILLI
from sterna.model.job import JobSpec, ReplicaSpec

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_TYPE = re.compile(r"[a-z][a-z0-9]{0,30}")
_MOST_WORKERS = 10_000


def admit(spec: JobSpec, slices: Slices) -> None:
    """Raise unless the job could run on these nodes if they were empty."""
    check_name(spec.name)
    if not 1 <= spec.minimum <= spec.maximum <= _MOST_WORKERS:
        raise UserError(
            f"Job '{spec.name}': {spec.minimum} to {spec.maximum} workers are not possible; give a minimum of at least "
            f"1 and a maximum from there to {_MOST_WORKERS:,}."
        )
    if not spec.minimum <= spec.request <= spec.maximum:
        raise UserError(
            f"Job '{spec.name}': it asks for {spec.request} workers, outside {spec.minimum} to {spec.maximum}; ask for "
            "a number in between."
        )
    if not any(each.command for each in spec.replicas):
        raise UserError(f"Job '{spec.name}' has no command; say what to run, e.g. [python, train.py].")
    for replica in spec.replicas:
        _admit_replica(spec, replica)
    _fit(spec, slices)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name[:80]}' cannot be the name of a job; use up to 63 letters, digits, '-', '_' or '.', beginning and "
            "ending with a letter or digit."
        )


def _admit_replica(spec: JobSpec, replica: ReplicaSpec) -> None:
    if not _TYPE.fullmatch(replica.type):
        raise UserError(f"Job '{spec.name}': '{replica.type[:40]}' is no type of replica; use worker, ps or the like.")
    if not replica.command:
        return
    folder = Path(replica.working_dir) if replica.working_dir else None
    if folder is not None and not folder.is_dir():
        raise UserError(f"Job '{spec.name}': there is no working folder '{folder}'; make it, or give another.")
    program = replica.command[0]
    path = dict(replica.env).get("PATH", os.environ.get("PATH", os.defpath))
    if os.sep in program:
        at = os.path.join(folder or "", program)
        if not (os.path.isfile(at) and os.access(at, os.X_OK)):
            raise UserError(f"Job '{spec.name}': '{program}' is not a program that can be run; check the path.")
    elif shutil.which(program, path=path) is None:
        raise UserError(
            f"Job '{spec.name}': the command '{program}' was not found; install it, or give its whole path."
        )


def _fit(spec: JobSpec, slices: Slices) -> None:
    shape = shape_of(spec, slices)
    room = Room(slices.table())
    each = int(room.slots(shape).max(initial=0))
    if not each:
        need = f"{shape.devices / MILLI:g} devices, " if shape.devices else ""
        memory = f" and {shape.memory_bytes / (1 << 20):,.0f} MiB of memory" if shape.memory_bytes else ""
        raise UserError(
            f"Job '{spec.name}': one worker needs {need}{shape.cpus / MILLI:g} CPUs{memory}, more than any node has; "
            "ask for less, or start the cluster with larger nodes (sterna up --nodes)."
        )
    if shape.ps and not seat_ps(room, shape, spec.minimum):
        raise UserError(f"Job '{spec.name}': no nodes can hold its {shape.ps} other replicas; ask for less.")
    total = int(room.slots(shape).sum())
    if total < spec.minimum:
        raise UserError(
            f"Job '{spec.name}': it needs {spec.minimum} workers at once and the whole cluster has room for {total}; "
            "lower its minimum, or start the cluster with more nodes (sterna up --nodes)."
        )
