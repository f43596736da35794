"""What a replica finds in its environment: who it is, where its peers listen, where to save, whom to tell.

Every kind of manifest gets the variables that its framework looks for, with addresses on loopback. Values that a user
gave win over those of the daemon's own environment, ours win over both, because a job that was told another rank than
it has cannot train.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sterna.backends.local.store.records import AttemptRecord, JobRecord, ReplicaRecord, StatePaths
from sterna.errors import Retry
from sterna.kinds.environment.gang import UNRANKED, Gang, GangMember
from sterna.kinds.registry import find_kind
from sterna.model.job import ReplicaSpec, Resizing

HOST = "127.0.0.1"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TRIES = 64


@dataclass
class Surroundings:
    """What is the same for every job of a daemon."""

    paths: StatePaths
    url: str = ""
    """Of the REST API, for jobs that report over HTTP; empty: there is none."""
    token_file: str = ""
    """Empty: no token is asked for."""
    ca_file: str = ""

    def tell_url(self, url: str, token_file: str, ca_file: str) -> None:
        """The API listens; jobs that start from now on are told where."""
        self.url, self.token_file, self.ca_file = url, token_file, ca_file


def free_ports(count: int, taken: frozenset[int]) -> list[int]:
    """Ports on loopback that nobody listens on now, none of them twice and none of those that others were given."""
    ports: list[int] = []
    with _HeldPorts() as held:
        for _ in range(count + _TRIES):
            if len(ports) == count:
                return ports
            port = held.one_more()
            if port not in taken:
                ports.append(port)
    raise Retry(f"{count} free ports on {HOST} were not found")


class _HeldPorts:
    """Sockets that keep ports from being found twice while more are looked for."""

    def __enter__(self) -> _HeldPorts:
        self._sockets: list[socket.socket] = []
        return self

    def one_more(self) -> int:
        try:
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._sockets.append(held)
            held.bind((HOST, 0))
        except OSError as error:
            raise Retry(f"no port on {HOST}: {error.strerror}") from None
        return int(held.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        for held in self._sockets:
            held.close()


def environment(
    around: Surroundings,
    job: JobRecord,
    attempt: AttemptRecord,
    replica: ReplicaRecord,
    spec: ReplicaSpec,
    cores: int,
) -> dict[str, str]:
    """All variables of one replica."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("STERNA_")}
    own.update(spec.env)
    own.update(_identity(around, job, attempt, replica))
    own["PYTHONUNBUFFERED"] = "1"
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [own.get("PYTHONPATH", ""), str(agent_folder(around.paths))]))
    given = dict(spec.env)
    own.update({name: str(cores) for name in _THREADS if name not in given})
    if replica.devices:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, replica.devices))
    elif spec.devices == 0 and "CUDA_VISIBLE_DEVICES" not in given:
        own["CUDA_VISIBLE_DEVICES"] = ""  # a job that asked for no GPU must not take one from those that did
    own.update(_trainer_status(around, job))
    own.update(_framework(around, job, attempt, replica))
    return own


def _identity(around: Surroundings, job: JobRecord, attempt: AttemptRecord, replica: ReplicaRecord) -> dict[str, str]:
    paths = around.paths
    named = {
        "STERNA_DIR": str(paths.replica(job.name, attempt.number, replica.name)),
        "STERNA_JOB": job.name,
        "STERNA_ATTEMPT": str(attempt.number),
        "STERNA_TYPE": replica.type,
        "STERNA_INDEX": str(replica.index),
        "STERNA_RANK": str(replica.rank),
        "STERNA_SIZE": str(len(_ranked(attempt))),
        "STERNA_GENERATION": str(attempt.generation),
        "STERNA_CHECKPOINT_DIR": str(paths.checkpoint(job.name)),
    }
    if job.spec.resizing is Resizing.IN_PLACE:
        named["STERNA_WORLD"] = str(paths.world(job.name))
    return named


def agent_folder(paths: StatePaths) -> Path:
    """A folder that holds nothing but our package, so that a job's own Python finds the agent and nothing else."""
    return paths.state / "agent"


def no_token(paths: StatePaths) -> Path:
    """What is shown where none is asked for, to clients that do not ask without one."""
    return paths.state / "no-token"


def offer_agent(paths: StatePaths) -> None:
    no_token(paths).write_text("none\n", encoding="ascii")
    folder = agent_folder(paths)
    folder.mkdir(exist_ok=True)
    link, package = folder / "sterna", Path(__file__).resolve().parents[2]
    if not link.is_symlink() or link.readlink() != package:
        link.unlink(missing_ok=True)
        link.symlink_to(package)


def _trainer_status(around: Surroundings, job: JobRecord) -> dict[str, str]:
    """Kubeflow Trainer's status protocol: scripts that know it report by themselves, but only with a token."""
    if not around.url:
        return {}
    told = {
        "KUBEFLOW_TRAINER_SERVER_URL": f"{around.url}/api/v1/jobs/{job.name}/trainer-status",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": around.token_file or str(no_token(around.paths)),
    }
    if around.ca_file:
        told["KUBEFLOW_TRAINER_SERVER_CA_CERT"] = around.ca_file
    return told


def _ranked(attempt: AttemptRecord) -> list[ReplicaRecord]:
    return [replica for replica in attempt.members if replica.type not in UNRANKED]


def _framework(
    around: Surroundings, job: JobRecord, attempt: AttemptRecord, replica: ReplicaRecord
) -> Mapping[str, str]:
    """Variables that the framework of the job's kind looks for, with addresses on loopback."""
    kind = find_kind(job.spec.kind)
    if kind is None:
        return {}
    ranked = sorted(_ranked(attempt), key=lambda each: each.rank)
    called = attempt.first if job.spec.resizing is Resizing.TORCHRUN or not ranked else ranked[0]
    gang = Gang(
        rendezvous_id=f"{job.name}-{attempt.number}",
        size=len(ranked) or sum(count for _, count in job.workers),
        host=HOST,
        port=called.port,
        minimum=job.minimum,
        maximum=job.maximum,
        addresses=_addresses(attempt.members),
        own_host=HOST,
        folder=str(attempt_folder(around, job, attempt)),
    )
    member = GangMember(replica.type, replica.index, replica.rank, replica is attempt.first)
    return kind.environment(job.spec, member, gang)


def _addresses(members: Sequence[ReplicaRecord]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for member in sorted(members, key=lambda each: (each.type, each.index)):
        if member.type != "evaluator":  # it is not part of the cluster that trains
            found.setdefault(member.type, []).append(f"{HOST}:{member.port}")
    return tuple((type_, tuple(each)) for type_, each in found.items())


def attempt_folder(around: Surroundings, job: JobRecord, attempt: AttemptRecord) -> Path:
    return around.paths.job(job.name) / str(attempt.number)
