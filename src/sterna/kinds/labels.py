"""Label and annotation keys that Sterna reads and writes on Kubernetes objects."""

from __future__ import annotations

GROUP = "sterna.dev"
JOB_LABEL = f"{GROUP}/job"
"""On every pod of ours: the name of its job. On a plain pod: that its user wants it looked after."""
KIND_LABEL = f"{GROUP}/kind"
TYPE_LABEL = f"{GROUP}/type"
INDEX_LABEL = f"{GROUP}/index"
ATTEMPT_LABEL = f"{GROUP}/attempt"
ASSIGNMENT = f"{GROUP}/assignment"
"""Annotation of every pod of a gang: where all of it shall sit, as JSON, so that one survivor tells of the others."""
MEMORY = f"{GROUP}/memory"
"""Annotation of a job whose kind keeps no status of ours: what is remembered, as JSON."""
PROGRESS = f"{GROUP}/progress"
"""Annotation of a pod: how it tells of its progress, the fields of `ProgressSpec` as JSON; for the monitor of its node,
which sees pods and no jobs."""
MIN_WORKERS, MAX_WORKERS = f"{GROUP}/min-workers", f"{GROUP}/max-workers"
MIGRATE_TO = f"{GROUP}/migrate-to"
"""Annotation of a job: the node that somebody wants it on, and behind it anything that tells one request from the last
(`node-1 2024-05-01T12:00:00Z`). Looked at once."""
HOSTS = f"{GROUP}/hosts"
"""Annotation of the launcher of an MPI job: which workers it can find."""
RULES = f"{GROUP}/rules"
"""Annotation of the Lease: the rules that its holder decides by, a `PolicyView` as JSON; for whoever asks why."""
SERVING = "SERVING_POD"
SCHEDULER = "sterna"
