"""Kinds: from users' objects to values, and from decisions to pods. Pure: nothing here knows a server or a clock.

In: `read` makes a `Submitted` of a TFJob, PyTorchJob, MPIJob, TrainingJob or labelled pod, or raises the sentence that
its user is told; `pod_row` and `share_row` make rows of any pod and SharePod. Out: `pod_of` and its neighbours make the
objects that a decision turns into, `mpi_start` and its neighbours patches of MPIJobs, `move_record` and `moved_pod` a
plain pod that goes elsewhere.
"""

from sterna.backends.kubernetes.kinds.context import ClusterDomain, KubeShare, ParseContext
from sterna.backends.kubernetes.kinds.move_record import Move, move_record, moved_pod, read_record, record_name
from sterna.backends.kubernetes.kinds.mpi_job import mpi_scale, mpi_start, mpi_suspend
from sterna.backends.kubernetes.kinds.mpi_v1 import translated_v1
from sterna.backends.kubernetes.kinds.parsing import invalid_reason, is_ours, read
from sterna.backends.kubernetes.kinds.pod_builder import binding_of, pod_name, pod_of, service_of, share_pod_of
from sterna.backends.kubernetes.kinds.pod_rows import is_plain_job, is_serving, pending_serving_pod, pod_row
from sterna.backends.kubernetes.kinds.share_pod import ShareRow, placing_patch, share_row

__all__ = [
    "ClusterDomain",
    "KubeShare",
    "Move",
    "ParseContext",
    "ShareRow",
    "binding_of",
    "invalid_reason",
    "is_ours",
    "is_plain_job",
    "is_serving",
    "move_record",
    "moved_pod",
    "mpi_scale",
    "mpi_start",
    "mpi_suspend",
    "pending_serving_pod",
    "placing_patch",
    "pod_name",
    "pod_of",
    "pod_row",
    "read",
    "read_record",
    "record_name",
    "service_of",
    "share_pod_of",
    "share_row",
    "translated_v1",
]
