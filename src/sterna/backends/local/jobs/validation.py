"""Validation of submitted jobs against this machine: capacity, programs, and names that are safe as folders.

Each rejection is one sentence with advice. Manifests are validated where they are parsed; here are checks that only
this machine can make, and those whose omission would be dangerous.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from functools import lru_cache

from sterna.backends.local.store.job_store import shape_of
from sterna.backends.local.store.node_slices import Slices
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.placement.place import place_parameter_servers
from sterna.errors import UserError
from sterna.model.cluster import MILLI, Shape
from sterna.model.job import JobSpec, ReplicaSpec
from sterna.progress.lines import compile_patterns

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_TYPE = re.compile(r"[a-z][a-z0-9]{0,30}")
_MOST_WORKERS = 10_000
_MOST_SEEN = 10_000
_FRESH_SECONDS = 1.0


class JobValidator:
    """Validates jobs for the nodes of one cluster. Results are cached for equal jobs."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._seen: dict[tuple[Shape, int], str] = {}
        self._found: dict[tuple[str, str], float] = {}
        """Time at which each program was last found on a path."""

    def admit(self, spec: JobSpec) -> None:
        """Raise UserError unless the job could run on these nodes if they were empty."""
        _check(spec)
        for replica in spec.replicas:
            self._check_replica(spec.name, replica)
        shape = shape_of(spec, self._slices)
        what = self._seen.get((shape, spec.minimum))
        if what is None:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            what = self._seen[shape, spec.minimum] = _too_much(shape, spec.minimum, self._slices)
        if what:
            raise UserError(f"Job '{spec.name}': {what}")

    def _check_replica(self, job: str, replica: ReplicaSpec) -> None:
        if not _TYPE.fullmatch(replica.type):
            raise UserError(f"Job '{job}': '{replica.type[:40]}' is no type of replica; use worker, ps or the like.")
        if not replica.command:
            return
        folder = replica.working_dir
        if folder and not os.path.isdir(folder):
            raise UserError(f"Job '{job}': there is no working folder '{folder}'; make it, or give another.")
        program = replica.command[0]
        path = dict(replica.env).get("PATH", os.environ.get("PATH", os.defpath))
        if os.sep in program:
            at = os.path.join(folder, program)
            if not (os.path.isfile(at) and os.access(at, os.X_OK)):
                raise UserError(f"Job '{job}': '{program}' is not a program that can be run; check the path.")
        elif not self._is_found(program, path):
            raise UserError(f"Job '{job}': the command '{program}' was not found; install it, or give its whole path.")

    def _is_found(self, program: str, path: str) -> bool:
        """True if the program exists; cached for a moment, because a thousand jobs may run the same one."""
        now = time.monotonic()
        if now - self._found.get((program, path), -_FRESH_SECONDS) < _FRESH_SECONDS:
            return True
        if shutil.which(program, path=path) is None:
            return False
        if len(self._found) >= _MOST_SEEN:
            self._found.clear()
        self._found[program, path] = now
        return True


def _check(spec: JobSpec) -> None:
    """Make the checks that do not depend on the nodes."""
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
    _check_patterns(spec.name, spec.progress.sources.get("stdout", ()))


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name[:80]}' cannot be the name of a job; use up to 63 letters, digits, '-', '_' or '.', beginning and "
            "ending with a letter or digit."
        )


def _check_patterns(name: str, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if what := _trouble_with(pattern):
            raise UserError(f"Job '{name}': {what[:1].lower()}{what[1:]}")


@lru_cache(maxsize=256)
def _trouble_with(pattern: str) -> str:
    """Return why a progress pattern is unusable; empty: it is usable. Cached, because compiling takes a while."""
    try:
        compile_patterns([pattern])
    except UserError as error:
        return str(error)
    return ""


def _too_much(shape: Shape, minimum: int, slices: Slices) -> str:
    """Return why such a job could not run even on empty nodes; empty: it could."""
    room = FreeCapacity(slices.table())
    each = int(room.slots(shape).max(initial=0))
    if not each:
        need = f"{shape.devices / MILLI:g} devices, " if shape.devices else ""
        memory = f" and {shape.memory_bytes / (1 << 20):,.0f} MiB of memory" if shape.memory_bytes else ""
        return (
            f"one worker needs {need}{shape.cpus / MILLI:g} CPUs{memory}, more than any node has; ask for less, or "
            "start the cluster with larger nodes (sterna up --nodes)."
        )
    if shape.ps and not place_parameter_servers(room, shape, minimum):
        return f"no nodes can hold its {shape.ps} other replicas; ask for less."
    total = int(room.slots(shape).sum())
    if total < minimum:
        return (
            f"it needs {minimum} workers at once and the whole cluster has room for {total}; lower its minimum, or "
            "start the cluster with more nodes (sterna up --nodes)."
        )
    return ""
