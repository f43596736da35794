"""Variables that PyTorch looks for: the addresses of a gang of fixed size, or those of torchrun's elastic agents.

Worker 0 gets `is_host=true`: torchrun would otherwise resolve the host name by a DNS that may not know it yet. Without
TORCH_DISABLE_SHARE_RDZV_TCP_STORE a second agent can never join.
"""

from __future__ import annotations

from sterna.kinds.environment.gang import Gang, GangMember
from sterna.model.job import JobSpec, Resizing

_RENDEZVOUS_CONF = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"


def torch_environment(spec: JobSpec, member: GangMember, gang: Gang) -> dict[str, str]:
    elastic = spec.resizing is Resizing.TORCHRUN
    return elastic_environment(member, gang) if elastic else static_environment(member, gang)


def gang_environment(spec: JobSpec, member: GangMember, gang: Gang) -> dict[str, str]:
    """As `torch_environment`, but without a rendezvous for a job that never has a second replica to call."""
    if spec.resizing is Resizing.IN_PLACE:
        return {}  # its workers learn of each other from the agent, while they run
    others = sum(each.count for each in spec.replicas if each is not spec.worker)
    if spec.resizing.is_by_restart and gang.size + others <= 1:
        return dict(gang.variables)
    return torch_environment(spec, member, gang)


def static_environment(member: GangMember, gang: Gang) -> dict[str, str]:
    """Variables of a gang that keeps its size while it trains."""
    return {
        "MASTER_ADDR": gang.host,
        "MASTER_PORT": str(gang.port),
        "WORLD_SIZE": str(gang.size),
        "RANK": str(member.rank),
        "LOCAL_RANK": "0",
        "PET_NNODES": str(gang.size),
        "PET_NODE_RANK": str(member.rank),
        "PET_MASTER_ADDR": gang.host,
        "PET_MASTER_PORT": str(gang.port),
        "PYTHONUNBUFFERED": "1",
        **gang.variables,
    }


def elastic_environment(member: GangMember, gang: Gang) -> dict[str, str]:
    """Variables of agents that join and leave. Every agent that leaves costs the others a restart, hence the limit."""
    found = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PET_NNODES": f"{gang.minimum}:{gang.maximum}",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{gang.host}:{gang.port}",
        "PET_RDZV_ID": gang.rendezvous_id,
        "PET_RDZV_CONF": _RENDEZVOUS_CONF,
        "PET_MAX_RESTARTS": "1000",
        "PYTHONUNBUFFERED": "1",
        **({"PET_LOCAL_ADDR": gang.own_host} if gang.own_host else {}),
        **gang.variables,
    }
    if found["PET_RDZV_BACKEND"] == "c10d" and "PET_RDZV_ENDPOINT" not in gang.variables:
        found["PET_RDZV_CONF"] += f",is_host={str(member.is_host).lower()}"
    return found
