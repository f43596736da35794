"""What is the same for every object that is read and every pod that is made: the cluster's own choices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class KubeShare(Enum):
    """Whether jobs are taken that are TFJobs marked for KubeShare (DRAGON-10)."""

    BOTH = "both"
    """All jobs are: TFJobs that are marked as SharePods, the others as pods."""
    OFF = "off"
    """All but those."""
    ONLY = "only"
    """Those and nothing else, so that a second operator may take the others."""


@dataclass(frozen=True)
class ParseContext:
    """What a user's object leaves open."""

    default_image: str = ""
    """For a TrainingJob that names none; empty: it has to."""
    gpu_resource: str = "nvidia.com/gpu"
    """What a TrainingJob's `gpu` asks for."""
    kubeshare: KubeShare = KubeShare.BOTH


@dataclass(frozen=True)
class ClusterDomain:
    """What pods find around them."""

    cluster_domain: str = ""
    """Appended to names of services, as DRAGON's CUSTOM_CLUSTER_DOMAIN; empty: `.svc` is enough."""
