"""Parts of a GPU as KubeShare's annotations say them (DRAGON-35 to 37)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sterna.errors import UserError
from sterna.kinds.parsed_job import GpuFraction
from sterna.model.cluster import MILLI
from sterna.parse_number import real

MARK = "DRAGON_KUBESHARE"
"""On a TFJob: its replicas are to be SharePods."""
REQUEST, LIMIT, MEMORY = "kubeshare/gpu_request", "kubeshare/gpu_limit", "kubeshare/gpu_mem"
GPU_ID = "kubeshare/GPUID"
PRIORITY = "lsalab.nthu/priority"
_MOST_BYTES = 1 << 53


def parse_gpu_fraction(annotations: Mapping[str, str]) -> GpuFraction | None:
    """None: no GPU is asked for in parts. Shares are rounded up to thousandths."""
    if REQUEST not in annotations and LIMIT not in annotations:
        return None
    request = _part(annotations, REQUEST, 0)
    limit = _part(annotations, LIMIT, MILLI)
    if request > limit:
        raise UserError(
            f"{REQUEST} {annotations[REQUEST]} is more than {LIMIT} {annotations.get(LIMIT, '1.0')}; make it at most "
            "as large."
        )
    if not request:
        return None
    return GpuFraction(request, limit, _memory(annotations))


def gpu_fraction_annotations(gpu_fraction: GpuFraction, memory_bytes: int = 0) -> dict[str, str]:
    """As KubeShare reads them; `memory_bytes`: of the whole GPU, for a share that does not say how much it needs."""
    memory = gpu_fraction.memory_bytes or memory_bytes * gpu_fraction.request // MILLI
    return {
        REQUEST: f"{gpu_fraction.request / MILLI:g}",
        LIMIT: f"{gpu_fraction.limit / MILLI:g}",
        MEMORY: str(memory),
    }


def _part(annotations: Mapping[str, str], key: str, default: int) -> int:
    text = annotations.get(key)
    if text is None:
        return default
    try:
        part = real(text)
    except ValueError:
        part = math.nan
    if not 0 <= part <= 1:
        raise UserError(f"The annotation {key} is '{text[:40]}'; write a share of one GPU from 0 to 1.")
    return math.ceil(round(part * MILLI, 6))


def _memory(annotations: Mapping[str, str]) -> int:
    text = annotations.get(MEMORY, "0").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= _MOST_BYTES):
        raise UserError(f"The annotation {MEMORY} is '{text[:40]}'; write a number of bytes.")
    return int(text)
