"""Prepare replicas (capacity, devices, port, control group, environment) and start them.

The caller decides what to start, and has written it to the database before.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sterna.backends.local.cgroups.select import Control
from sterna.backends.local.jobs.environment import (
    HOST,
    EnvironmentConfig,
    attempt_folder,
    free_ports,
    replica_environment,
)
from sterna.backends.local.jobs.layout import (
    devices_for,
    held_resources,
    lay_out_replicas,
    over_committed,
    size_of,
    spec_of,
)
from sterna.backends.local.kernel.atomic_files import replace_file
from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.store.records import ENDED, AttemptRecord, ReplicaRecord, encode
from sterna.backends.local.supervisor.launch_spec import LaunchSpec
from sterna.backends.local.supervisor.launcher import ReplicaState
from sterna.errors import Retry
from sterna.kinds.registry import find_kind
from sterna.model.job import Resizing


class Processes(Protocol):
    """Starts, stops and inspects replicas by their folders."""

    def start(self, folder: Path, launch_spec: LaunchSpec, /) -> None: ...

    def stop(self, folder: Path, grace_seconds: float, why: str, /) -> None: ...

    def inspect(self, folder: Path, /) -> ReplicaState: ...

    def void(self, folder: Path, /) -> bool: ...

    def kill(self, folder: Path, /) -> bool: ...

    def cpu_seconds(self, folder: Path, /) -> float: ...

    def watch(self, folder: Path, /) -> int | None: ...


@dataclass(frozen=True)
class LocalDeps:
    """Dependencies of attempts."""

    processes: Processes
    groups: Control
    environment: EnvironmentConfig
    as_submitter: bool = False
    log_bytes: int = 64 << 20


class AttemptLauncher:
    """Prepares and starts replicas."""

    def __init__(self, store: JobStore, deps: LocalDeps) -> None:
        self._store, self._deps = store, deps
        self._nodes = {node.name: node for node in store.slices.nodes}

    def arrange(self, job: LocalJob) -> bool:
        """Create an attempt for a job, if its capacity is free."""
        record, now = job.record, self._store.clock()
        if not self._has_room(job):
            return False
        replicas = lay_out_replicas(record)
        if not self.equip(job, replicas, record.attempts + 1):
            return False
        record.attempts += 1
        record.attempt = AttemptRecord(
            record.attempts, now, replicas, list(record.workers), list(record.servers), counted_from=now
        )
        record.by_checkpoint = False
        job.weights.clear()
        return True

    def _has_room(self, job: LocalJob) -> bool:
        """True if replicas that were asked to leave its nodes have exited; other jobs count as in the decision."""
        held = held_resources(job.shape, job.record.workers, job.record.servers)
        if not held.keys() <= self._nodes.keys():
            return False
        for other in self._store.live.values():
            attempt = other.record.attempt
            if other is job or attempt is None or not attempt.live:
                continue
            for name, (cpus, memory) in held_resources(other.shape, attempt.workers, attempt.servers).items():
                if name in held:
                    held[name] = (held[name][0] + cpus, held[name][1] + memory)
        return not over_committed(held, self._nodes)

    def equip(self, job: LocalJob, replicas: Sequence[ReplicaRecord], number: int) -> bool:
        """Assign devices, cores, a port and a control group to each replica; return False while other jobs hold the
        devices."""
        others = [
            replica
            for other in self._store.live.values()
            if other.record.attempt is not None
            for replica in other.record.attempt.live
        ]
        for replica in replicas:
            shape = job.shape if replica.type == job.record.spec.worker.type else None
            found = devices_for(self._nodes[replica.node], shape, replica.slot, others) if shape else []
            if found is None:
                return False
            replica.devices = found
            others.append(replica)
        taken = frozenset(each.port for each in others if each.port)
        for replica, port in zip(replicas, free_ports(len(replicas), taken), strict=True):
            replica.port = port
            replica.cores = self.cores(job, replica)
            replica.group = self._group(job, replica, number)
        return True

    def cores(self, job: LocalJob, replica: ReplicaRecord) -> list[int]:
        """Return the cores of its node; for a launcher, of all nodes on which it starts workers."""
        is_launcher = not job.record.spec.worker.command
        names = {name for name, _ in job.record.workers} if is_launcher else {replica.node}
        return sorted({core for name in names for core in self._nodes[name].cores})

    def _group(self, job: LocalJob, replica: ReplicaRecord, number: int) -> str:
        """Create the control group; none for a launcher whose workers are on several nodes, which one group could not
        hold."""
        if not job.record.spec.worker.command and {name for name, _ in job.record.workers} != {replica.node}:
            return ""
        return f"{job.name}.{number}.{replica.name}"

    def prepare(self, job: LocalJob, attempt: AttemptRecord) -> None:
        """Create folders and files that all replicas of an attempt use."""
        config = self._deps.environment
        checkpoint = config.paths.checkpoint(job.name)
        checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hand_to_user(job, checkpoint.parent, checkpoint)
        self.write_world(job, attempt)
        kind = find_kind(job.record.spec.kind)
        for file in kind.attempt_files(size_of(attempt.workers)) if kind else ():
            folder = attempt_folder(config, job.record, attempt)
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder, file.name, file.content.encode(), file.mode, durable=False)

    def launch(self, job: LocalJob, attempt: AttemptRecord, replica: ReplicaRecord) -> None:
        """Start one process. If that fails, void the replica, so that it cannot start later."""
        deps = self._deps
        spec = spec_of(job.record, replica.type)
        folder = deps.environment.paths.replica(job.name, attempt.number, replica.name)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            uid, gid = self._hand_to_user(job, folder)
            groups = deps.groups.make_job(replica.node, replica.group) if replica.group else ()
            threads = len(replica.cores) if not job.record.spec.worker.command else int(job.cores)
            launch_spec = LaunchSpec(
                token=replica.token,
                command=spec.command,
                env=replica_environment(deps.environment, job.record, attempt, replica, spec, threads),
                cwd=spec.working_dir or str(deps.environment.paths.job(job.name)),
                grace_seconds=job.record.spec.grace_seconds,
                groups=groups,
                cpus=replica.cores,
                log_bytes=deps.log_bytes,
                uid=uid,
                gid=gid,
            )
            deps.processes.start(folder, launch_spec)
        except (OSError, Retry) as error:
            self._store.note(job.name, "error", f"{replica.name} could not be started: {error}.")
            if folder.is_dir() and not deps.processes.void(folder):
                return  # a shim has locked it: it started after all
            with self._store.lock:
                replica.state, attempt.failed, attempt.lost = ENDED, True, True

    def _hand_to_user(self, job: LocalJob, *folders: Path) -> tuple[int | None, int | None]:
        """Give the folders to the submitting user, where jobs run as that user."""
        if not self._deps.as_submitter or not job.record.spec.user:
            return None, None
        try:
            user = pwd.getpwnam(job.record.spec.user)
        except KeyError:
            raise Retry(f"there is no user '{job.record.spec.user}' on this machine") from None
        for folder in folders:
            os.chown(folder, user.pw_uid, user.pw_gid)
        return user.pw_uid, user.pw_gid

    def write_world(self, job: LocalJob, attempt: AttemptRecord) -> None:
        if job.record.spec.resizing is not Resizing.IN_PLACE:
            return
        members = [
            {
                "rank": member.rank,
                "attempt": attempt.number,
                "index": member.index,
                "address": f"{HOST}:{member.port}",
            }
            for member in attempt.members
            if member.type == job.record.spec.worker.type
        ]
        content = encode({"generation": attempt.generation, "members": members})
        path = self._deps.environment.paths.world(job.name)
        replace_file(path.parent, path.name, content, durable=False)
