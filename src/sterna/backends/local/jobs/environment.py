"""Environment variables of a replica: identity, addresses of its peers, checkpoint folder, REST API.

Every kind of manifest gets the variables that its framework reads, with addresses on loopback. Precedence, lowest
first: the daemon's environment, the user's values, Sterna's, because a job with a wrong rank cannot train.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sterna
from sterna.backends.local.store.records import AttemptRecord, JobRecord, ReplicaRecord, StatePaths
from sterna.errors import Retry
from sterna.kinds.environment.gang import UNRANKED, Gang, GangMember
from sterna.kinds.registry import find_kind
from sterna.model.job import ReplicaSpec, Resizing

HOST = "127.0.0.1"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TRIES = 64


@dataclass
class EnvironmentConfig:
    """Values that are the same for every job of a daemon."""

    paths: StatePaths
    url: str = ""
    """URL of the REST API, for jobs that report over HTTP; empty: there is none. Set by `set_api`."""
    token_file: str = ""
    """Empty: the API requires no token."""
    ca_file: str = ""

    def set_api(self, url: str, token_file: str, ca_file: str) -> None:
        """Set the address of the REST API, for jobs that start from now on."""
        self.url, self.token_file, self.ca_file = url, token_file, ca_file


def free_ports(count: int, taken: frozenset[int]) -> list[int]:
    """Return distinct loopback ports that no process listens on and that are not in `taken`."""
    ports: list[int] = []
    with _HeldPorts() as held:
        for _ in range(count + _TRIES):
            if len(ports) == count:
                return ports
            port = held.bind_next()
            if port not in taken:
                ports.append(port)
    raise Retry(f"{count} free ports on {HOST} were not found")


class _HeldPorts:
    """Bound sockets, so that the kernel does not return the same port twice."""

    def __enter__(self) -> _HeldPorts:
        self._sockets: list[socket.socket] = []
        return self

    def bind_next(self) -> int:
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


def replica_environment(
    config: EnvironmentConfig,
    job: JobRecord,
    attempt: AttemptRecord,
    replica: ReplicaRecord,
    spec: ReplicaSpec,
    cores: int,
) -> dict[str, str]:
    """Return all variables of one replica."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("STERNA_")}
    own.update(spec.env)
    own.update(_identity(config.paths, job, attempt, replica))
    own["PYTHONUNBUFFERED"] = "1"
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [own.get("PYTHONPATH", ""), str(agent_folder(config.paths))]))
    given = dict(spec.env)
    own.update({name: str(cores) for name in _THREADS if name not in given})
    if replica.devices:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, replica.devices))
    elif spec.devices == 0 and "CUDA_VISIBLE_DEVICES" not in given:
        own["CUDA_VISIBLE_DEVICES"] = ""  # a job that requests no GPU must not use one
    own.update(_trainer_status(config, job))
    own.update(_framework(config, job, attempt, replica))
    return own


def _identity(paths: StatePaths, job: JobRecord, attempt: AttemptRecord, replica: ReplicaRecord) -> dict[str, str]:
    identity = {
        "STERNA_DIR": str(paths.replica(job.name, attempt.number, replica.name)),
        "STERNA_JOB": job.name,
        "STERNA_ATTEMPT": str(attempt.number),
        "STERNA_TYPE": replica.type,
        "STERNA_INDEX": str(replica.index),
        "STERNA_RANK": str(replica.rank),
        "STERNA_SIZE": str(len(_ranked_members(attempt))),
        "STERNA_GENERATION": str(attempt.generation),
        "STERNA_CHECKPOINT_DIR": str(paths.checkpoint(job.name)),
    }
    if job.spec.resizing is Resizing.IN_PLACE:
        identity["STERNA_WORLD"] = str(paths.world(job.name))
    return identity


def agent_folder(paths: StatePaths) -> Path:
    """Return a folder that contains only this package, so that a job's Python imports the agent and nothing else."""
    return paths.state / "agent"


def placeholder_token(paths: StatePaths) -> Path:
    """Return the token file for clients that insist on a token although the API requires none."""
    return paths.state / "no-token"


def link_agent(paths: StatePaths) -> None:
    """Create `agent_folder` and the placeholder token."""
    placeholder_token(paths).write_text("none\n", encoding="ascii")
    folder = agent_folder(paths)
    folder.mkdir(exist_ok=True)
    link, package = folder / "sterna", Path(sterna.__file__).resolve().parent
    if not link.is_symlink() or link.readlink() != package:
        link.unlink(missing_ok=True)
        link.symlink_to(package)


def _trainer_status(config: EnvironmentConfig, job: JobRecord) -> dict[str, str]:
    """Return the variables of Kubeflow Trainer's status protocol; its clients report only if they have a token."""
    if not config.url:
        return {}
    variables = {
        "KUBEFLOW_TRAINER_SERVER_URL": f"{config.url}/api/v1/jobs/{job.name}/trainer-status",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": config.token_file or str(placeholder_token(config.paths)),
    }
    if config.ca_file:
        variables["KUBEFLOW_TRAINER_SERVER_CA_CERT"] = config.ca_file
    return variables


def _ranked_members(attempt: AttemptRecord) -> list[ReplicaRecord]:
    return [replica for replica in attempt.members if replica.type not in UNRANKED]


def _framework(
    config: EnvironmentConfig, job: JobRecord, attempt: AttemptRecord, replica: ReplicaRecord
) -> Mapping[str, str]:
    """Return the variables that the framework of the job's kind reads, with addresses on loopback."""
    kind = find_kind(job.spec.kind)
    if kind is None:
        return {}
    ranked = sorted(_ranked_members(attempt), key=lambda each: each.rank)
    rendezvous = attempt.first if job.spec.resizing is Resizing.TORCHRUN or not ranked else ranked[0]
    gang = Gang(
        rendezvous_id=f"{job.name}-{attempt.number}",
        size=len(ranked) or sum(count for _, count in job.workers),
        host=HOST,
        port=rendezvous.port,
        minimum=job.minimum,
        maximum=job.maximum,
        addresses=_addresses(attempt.members),
        own_host=HOST,
        folder=str(attempt_folder(config, job, attempt)),
    )
    member = GangMember(replica.type, replica.index, replica.rank, replica is attempt.first)
    return kind.environment(job.spec, member, gang)


def _addresses(members: Sequence[ReplicaRecord]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for member in sorted(members, key=lambda each: (each.type, each.index)):
        if member.type != "evaluator":  # not part of the cluster that trains
            found.setdefault(member.type, []).append(f"{HOST}:{member.port}")
    return tuple((type_, tuple(each)) for type_, each in found.items())


def attempt_folder(config: EnvironmentConfig, job: JobRecord, attempt: AttemptRecord) -> Path:
    return config.paths.job(job.name) / str(attempt.number)
