"""KubeShare as far as we depend on it, for a cluster in memory: makes a pod of every SharePod that has a node, and
holds each shared GPU by a pod of its own.
"""

from __future__ import annotations

from contextlib import suppress

from sterna.backends.kubernetes.apiserver import PODS, SHARE_PODS, Resource
from tests.fakes.kube import FakeKube
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_store import Event, Object, Refused

GPU_ID = "kubeshare/GPUID"
_SECONDS = 0.2


class FakeKubeShare:
    """KubeShare's device manager."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube
        kube.store.listeners.append(self._note)

    def _note(self, resource: Resource, event: Event) -> None:
        if resource == SHARE_PODS:
            self._kube.call_in(_SECONDS, self._look)

    def _look(self) -> None:
        shares = self._kube.items(SHARE_PODS)
        for share in shares:
            node = share["spec"].get("nodeName")
            if node and not share["metadata"].get("deletionTimestamp"):
                self._hold(node, share["metadata"]["annotations"].get(GPU_ID, ""))
                self._make(share)
        used = {
            f"kubeshare-vgpu-{s['spec'].get('nodeName')}-{s['metadata']['annotations'].get(GPU_ID)}" for s in shares
        }
        for pod in self._kube.items(PODS):
            name = pod["metadata"]["name"]
            if name.startswith("kubeshare-vgpu") and name not in used and not pod["metadata"].get("deletionTimestamp"):
                self._kube.delete(PODS, name)

    def _hold(self, node: str, gpu: str) -> None:
        container = {"name": "sleep", "image": "sleep", "resources": {"limits": {GPU: 1}, "requests": {GPU: 1}}}
        if gpu:
            with suppress(Refused):
                self._kube.create(
                    PODS,
                    {
                        "metadata": {"name": f"kubeshare-vgpu-{node}-{gpu}"},
                        "spec": {"nodeName": node, "containers": [container]},
                    },
                )

    def _make(self, share: Object) -> None:
        meta = share["metadata"]
        owner = {"apiVersion": SHARE_PODS.api_version, "kind": "SharePod", "name": meta["name"], "uid": meta["uid"]}
        with suppress(Refused):
            self._kube.create(
                PODS,
                {
                    "metadata": {
                        "name": meta["name"],
                        "labels": meta.get("labels", {}),
                        "annotations": meta.get("annotations", {}),
                        "ownerReferences": [{**owner, "controller": True}],
                    },
                    "spec": share["spec"],
                },
            )
