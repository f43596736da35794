"""Assignments as the text of a pod annotation, and the ids of shared GPUs. Pure.

Every pod of a gang carries the assignment of the whole gang (`ASSIGNMENT`). The text names each node once, because a
gang of five hundred pods carries it five hundred times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from sterna.backends.kubernetes.api.job import KubeJob, PodState, ReplicaAssignment

Key = tuple[str, int]
"""Identifies a replica of a job: type and ordinal."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_GPU_ID_LENGTH = 5
_GPU_IDS = 26**5
"""Number of distinct ids."""
_MAX_REPLICAS = 100_000
"""Upper bound on ordinals in an annotation, against malformed input that would exhaust memory."""
_SEPARATOR = "/"
"""Separates a node from a GPU id; neither may contain it."""


def encode_assignment(gang: Iterable[ReplicaAssignment]) -> str:
    """Encode as `{"worker":{"node-1":"0-3,6"}}`: ordinals by type and node. Equal gangs have equal texts."""
    indices: dict[str, dict[str, list[int]]] = {}
    for replica in sorted(gang):
        where = f"{replica.node}{_SEPARATOR}{replica.gpu_id}" if replica.gpu_id else replica.node
        indices.setdefault(replica.type, {}).setdefault(where, []).append(replica.ordinal)
    texts = {
        type_: {where: encode_ranges(numbers) for where, numbers in sorted(places.items())}
        for type_, places in indices.items()
    }
    return msgspec.json.encode(texts).decode()


def decode_assignment(text: str) -> list[ReplicaAssignment] | None:
    """Decode the replicas of a gang, sorted; None if the text is malformed."""
    try:
        places = msgspec.json.decode(text, type=dict[str, dict[str, str]])
        found = [
            ReplicaAssignment(type_, index, *where.partition(_SEPARATOR)[::2])
            for type_, indices in places.items()
            for where, numbers in indices.items()
            for index in _decode_ranges(numbers)
        ]
    except (msgspec.MsgspecError, ValueError):
        return None
    return sorted(found)


def encode_ranges(numbers: Sequence[int]) -> str:
    """Encode ascending numbers as `0-3,6`."""
    parts = []
    for _, group in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        run = [number for _, number in group]
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ",".join(parts)


def current_nodes(job: KubeJob) -> dict[Key, str]:
    """Return the node of each replica of the latest attempt that stays."""
    latest = max((pod.attempt for pod in job.pods.values()), default=0)
    return {key: pod.node for key, pod in job.pods.items() if pod.attempt == latest and is_staying(job, key)}


def is_staying(job: KubeJob, key: Key) -> bool:
    """Return True if the replica has a pod that is neither being deleted nor failed."""
    pod = job.pods.get(key)
    return pod is not None and not pod.is_deleting and pod.state is not PodState.FAILED


def gpu_id(number: int) -> str:
    """Return KubeShare's id for a shared GPU number of a node: five letters."""
    letters = []
    for _ in range(_GPU_ID_LENGTH):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(reversed(letters))


def gpu_number(name: str) -> int:
    """Return the inverse of `gpu_id`; ids of other clients get numbers outside its range."""
    if len(name) == _GPU_ID_LENGTH and all(letter in _LETTERS for letter in name):
        number = 0
        for letter in name:
            number = number * len(_LETTERS) + _LETTERS.index(letter)
        return number
    return _GPU_IDS + int.from_bytes(name.encode()[:6], "big")


def _decode_ranges(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) >= _MAX_REPLICAS:
            raise ValueError(f"{part} is more than a gang can have")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
