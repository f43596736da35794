"""KubeShare as far as we depend on it, for a cluster in memory: makes a pod of every SharePod that has a node, and
holds each shared GPU by a pod of its own.

As the real one: a pod that is gone is made again, where it was, as long as its SharePod is there and it had not done
its work; while another pod has the name it tries again.
"""

from __future__ import annotations

from contextlib import suppress

from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS
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
        seen = event.after or event.before
        if resource == SHARE_PODS or (resource == PODS and seen is not None and _is_made(seen)):
            self._kube.call_in(_SECONDS, self._look)

    def _look(self) -> None:
        for pod in filter(_is_made, self._kube.items(PODS)):
            self._fill_job_fields(pod)
        shares = [share for share in self._kube.items(SHARE_PODS) if not _is_done(share)]
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

    def _fill_job_fields(self, pod: Object) -> None:
        """Copy the phase of the pod to the status of its SharePod."""
        share = self._kube.find(SHARE_PODS, pod["metadata"]["name"])
        status = {"PodStatus": {"phase": pod["status"]["phase"]}}
        if share is not None and share["metadata"]["uid"] == _owner(pod) and share.get("status") != status:
            self._kube.patch(SHARE_PODS, pod["metadata"]["name"], {"status": status}, "status")

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


def _owner(pod: Object) -> str:
    """The uid of its SharePod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each["kind"] == "SharePod"), "")


def _is_made(pod: Object) -> bool:
    return bool(_owner(pod))


def _is_done(share: Object) -> bool:
    """Return True if the pod will not run again."""
    ends = {"OnFailure": ("Succeeded",), "Never": ("Succeeded", "Failed")}.get(share["spec"].get("restartPolicy"), ())
    return (share.get("status") or {}).get("PodStatus", {}).get("phase", "") in ends
