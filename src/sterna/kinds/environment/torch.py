"""What PyTorch looks for in its environment: the addresses of a fixed gang, or of torchrun's elastic agents.

Worker 0 hosts the rendezvous and is told so: whether a name is its own, torchrun would ask a DNS that may not know yet.
Without the first variable a second agent can never join.
"""

from __future__ import annotations

from collections.abc import Mapping

from sterna.kinds.environment.hosts import host_of
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.parsing.pod_template import port_of
from sterna.model.job import Resizing

PORT_NAME, PORT = "pytorchjob-port", 23456
_RENDEZVOUS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
RENDEZVOUS = "PET_RDZV_CONF"


def port(parsed_job: ParsedJob) -> int:
    """The one port that the first replica listens on."""
    type_, _ = first(parsed_job)
    return port_of(parsed_job.templates.get(type_, {}), PORT_NAME, PORT)


def first(parsed_job: ParsedJob) -> tuple[str, int]:
    """The replica that the others call: a master, else worker 0."""
    scaled = parsed_job.spec.worker.type
    return next((each for each in ("master", "chief") if each in parsed_job.templates), scaled), 0


def fixed_environment(parsed_job: ParsedJob, rank: int, size: int, domain: str) -> dict[str, str]:
    """Of a gang that keeps its size while it trains."""
    host, at = _first_host(parsed_job, domain), str(port(parsed_job))
    given = dict(parsed_job.variables)
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": at,
        "WORLD_SIZE": str(size),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "PET_NNODES": str(size),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": at,
        "PYTHONUNBUFFERED": "1",
        **given,
    }


def elastic_environment(parsed_job: ParsedJob, index: int, attempt: int, domain: str) -> dict[str, str]:
    """Of agents that come and go."""
    spec, ref = parsed_job.spec, parsed_job.ref
    given: Mapping[str, str] = dict(parsed_job.variables)
    found = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PET_NNODES": f"{spec.minimum}:{spec.maximum}",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{_first_host(parsed_job, domain)}:{port(parsed_job)}",
        "PET_RDZV_ID": f"{ref.namespace}-{ref.name}-{attempt}",
        RENDEZVOUS: _RENDEZVOUS,
        "PET_MAX_RESTARTS": "1000",
        "PYTHONUNBUFFERED": "1",
        **given,
    }
    if found["PET_RDZV_BACKEND"] == "c10d" and "PET_RDZV_ENDPOINT" not in given:
        found[RENDEZVOUS] += f",is_host={str(index == 0).lower()}"
    return found


def is_elastic(parsed_job: ParsedJob) -> bool:
    return parsed_job.spec.resizing is Resizing.TORCHRUN


def _first_host(parsed_job: ParsedJob, domain: str) -> str:
    ref = parsed_job.ref
    type_, index = first(parsed_job)
    return host_of(ref.name, ref.namespace, type_, index, domain)
