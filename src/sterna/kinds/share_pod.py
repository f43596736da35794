"""SharePod `kubeshare.nthu/v1`: a fraction of a GPU. KubeShare creates the pods; Sterna accounts for what they use.

Replicas of other kinds that request a fraction become SharePods. A SharePod that a user creates is no job.
"""

from __future__ import annotations

from sterna.kinds.kind import READ, Kind, Permission
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.registry import register
from sterna.kinds.resource import Resource

SHARE_PODS = Resource("kubeshare.nthu", "v1", "sharepods", "SharePod")

KIND = register(
    Kind(
        resource=SHARE_PODS,
        summary="a fraction of a GPU, made into a pod by KubeShare; counted, and placed if it is urgent",
        parse=None,
        ownership=PodOwnership.KUBESHARE,
        install_hint="install KubeShare",
        permissions=(
            Permission(READ, "which parts of which GPUs are taken"),
            Permission(("create", "delete", "patch"), "replicas on a part of a GPU, and who goes first"),
        ),
    )
)
