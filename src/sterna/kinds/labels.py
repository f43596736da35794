"""Label and annotation keys that Sterna reads and writes on Kubernetes objects."""

from __future__ import annotations

GROUP = "sterna.dev"

JOB_LABEL = f"{GROUP}/job"
"""Label of every pod that Sterna creates: the name of its job. Users set it on plain pods to be managed by Sterna."""
KIND_LABEL = f"{GROUP}/kind"
TYPE_LABEL = f"{GROUP}/type"
INDEX_LABEL = f"{GROUP}/index"
ATTEMPT_LABEL = f"{GROUP}/attempt"

ASSIGNMENT = f"{GROUP}/assignment"
"""Annotation of every pod of a gang: the assignment of the whole gang as JSON, so that one surviving pod is enough to
recover it."""
MEMORY = f"{GROUP}/memory"
"""Annotation of a job whose status cannot hold `PersistedState`: the state as JSON."""
PROGRESS = f"{GROUP}/progress"
"""Annotation of a pod: its `ProgressSpec` as JSON, read by the node monitor, which sees pods but not jobs."""
PHASE, REASON = f"{GROUP}/phase", f"{GROUP}/reason"
"""Annotations of objects whose status another controller writes."""
MIN_WORKERS, MAX_WORKERS = f"{GROUP}/min-workers", f"{GROUP}/max-workers"
MIGRATE_TO = f"{GROUP}/migrate-to"
"""Annotation of a job: the requested node, followed by text that distinguishes requests
(`node-1 2024-05-01T12:00:00Z`). Each value is processed once."""
CHECKPOINT = f"{GROUP}/checkpoint"
"""Annotation of any job: where it saves its checkpoints (`JobSpec.checkpoint`)."""
HOSTS = f"{GROUP}/hosts"
"""Annotation of an MPIJob's launcher pod: the workers it can discover."""
RULES = f"{GROUP}/rules"
"""Annotation of the Lease: the rules of its holder, a `PolicyView` as JSON."""

AFFINITY_LABEL = f"{GROUP}/affinity-"
"""Prefix of virtual node labels, one per required node affinity; never written to a node."""
GPU_MEMORY_LABEL = f"{GROUP}/gpu-memory-"
"""Prefix of virtual node labels for a minimum GPU memory in bytes; never written to a node."""
RACK_LABEL = f"{GROUP}/rack"
GPU_INFO = "kubeshare/gpu_info"
"""Annotation that KubeShare sets on a node: its GPUs with the memory of each in MiB."""

SERVING = "SERVING_POD"
SCHEDULER = "sterna"
