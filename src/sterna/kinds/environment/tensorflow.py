"""TF_CONFIG: the addresses of all replicas by type, and which of them this one is.

`cluster.worker` lists as many workers as the job may ever have, so that workers which join later are known to those
that run. Chiefs inside the parameter servers come first among the workers.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from sterna.kinds.environment.gang import Gang, GangMember
from sterna.model.job import JobSpec


def tf_environment(spec: JobSpec, member: GangMember, gang: Gang) -> dict[str, str]:
    index = member.number + gang.chiefs if member.type == "worker" else member.number
    task = f'{{"type":"{member.type}","index":{index}}}'
    return {"TF_CONFIG": f'{{"cluster":{_cluster(gang.addresses)},"task":{task},"environment":"cloud"}}'}


@lru_cache(maxsize=256)
def _cluster(addresses: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """By far the largest part of the text, and equal for every replica of a gang."""
    return msgspec.json.encode(dict(addresses)).decode()
