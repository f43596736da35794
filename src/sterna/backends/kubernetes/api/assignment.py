"""Homes as text that a pod carries, and the names of what a seat may hold.

Pure. The text is the annotation `HOME` of every pod of a gang: one survivor tells where all of it shall sit. It names
each node once, because a gang of five hundred carries it five hundred times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from sterna.backends.kubernetes.api.job import KubeJob, PodState, ReplicaAssignment

Key = tuple[str, int]
"""Which replica of a job: its type and index."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_GPU_ID_LENGTH = 5
_GPU_IDS = 26**5
"""So many names there are."""
_MOST_REPLICAS = 100_000
"""More is no home that we wrote, and would fill the memory."""
_AT = "/"
"""Between a node and a shared GPU of it; neither may contain it."""


def encode_assignment(gang: Iterable[ReplicaAssignment]) -> str:
    """`{"worker":{"node-1":"0-3,6"}}`: by type and node, the indices that sit there. Equal gangs, equal text."""
    indices: dict[str, dict[str, list[int]]] = {}
    for replica in sorted(gang):
        where = f"{replica.node}{_AT}{replica.gpu_id}" if replica.gpu_id else replica.node
        indices.setdefault(replica.type, {}).setdefault(where, []).append(replica.ordinal)
    texts = {
        type_: {where: encode_ranges(numbers) for where, numbers in sorted(places.items())}
        for type_, places in indices.items()
    }
    return msgspec.json.encode(texts).decode()


def decode_assignment(text: str) -> list[ReplicaAssignment] | None:
    """The seats of a gang, sorted; None if the text is not ours."""
    try:
        places = msgspec.json.decode(text, type=dict[str, dict[str, str]])
        found = [
            ReplicaAssignment(type_, index, *where.partition(_AT)[::2])
            for type_, indices in places.items()
            for where, numbers in indices.items()
            for index in _read(numbers)
        ]
    except (msgspec.MsgspecError, ValueError):
        return None
    return sorted(found)


def encode_ranges(numbers: Sequence[int]) -> str:
    """`0-3,6`."""
    parts = []
    for _, group in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        run = [number for _, number in group]
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ",".join(parts)


def current_nodes(job: KubeJob) -> dict[Key, str]:
    """Which node each replica of the present attempt holds that is not on its way out."""
    latest = max((pod.attempt for pod in job.pods.values()), default=0)
    return {key: pod.node for key, pod in job.pods.items() if pod.attempt == latest and is_staying(job, key)}


def is_staying(job: KubeJob, key: Key) -> bool:
    """Whether a replica's pod is there and nobody has asked it to go, nor has it failed."""
    pod = job.pods.get(key)
    return pod is not None and not pod.is_deleting and pod.state is not PodState.FAILED


def gpu_id(number: int) -> str:
    """The name under which KubeShare shall know a shared GPU of a node: five letters (DRAGON-36)."""
    letters = []
    for _ in range(_GPU_ID_LENGTH):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(reversed(letters))


def gpu_number(name: str) -> int:
    """What `gpu_id` made the name of; names that others gave get numbers that ours never reach."""
    if len(name) == _GPU_ID_LENGTH and all(letter in _LETTERS for letter in name):
        number = 0
        for letter in name:
            number = number * len(_LETTERS) + _LETTERS.index(letter)
        return number
    return _GPU_IDS + int.from_bytes(name.encode()[:6], "big")


def _read(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) >= _MOST_REPLICAS:
            raise ValueError(f"{part} is more than a gang can have")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
