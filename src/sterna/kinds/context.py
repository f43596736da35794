"""Choices of the cluster that parsing a manifest depends on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class KubeShare(Enum):
    """Jobs that an operator manages where TFJobs may be marked for KubeShare."""

    BOTH = "both"
    """All: marked TFJobs become SharePods, other jobs become pods."""
    OFF = "off"
    """All jobs but marked TFJobs."""
    ONLY = "only"
    """Marked TFJobs only, so that a second operator may manage the other jobs."""


@dataclass(frozen=True)
class ParseContext:
    """Defaults for what a manifest leaves open."""

    default_image: str = ""
    """Image of a TrainingJob that names none; empty: every TrainingJob must name one."""
    gpu_resource: str = "nvidia.com/gpu"
    """Resource that the `gpu` of a TrainingJob requests."""
    kubeshare: KubeShare = KubeShare.BOTH
    runs_images: bool = True
    """False on one machine: the container's command runs as a process, so images are ignored, commands are required,
    and fields that only a cluster can honour are left out with a notice."""


ON_A_CLUSTER = ParseContext()
ON_ONE_MACHINE = ParseContext(runs_images=False)
