"""Values that callers pass to a `ClusterService`."""

from __future__ import annotations

import msgspec

from sterna.service.views import JobView


class Submission(msgspec.Struct, frozen=True):
    """Manifests of one caller: one, a list, a Kubernetes List or a YAML stream."""

    body: bytes
    is_json: bool
    cwd: str = ""
    """Folder that commands start in and relative paths begin at; local clusters only."""
    key: str = ""
    """Idempotency key: submitting again under the same key creates nothing and returns the first result."""
    user: str = ""
    """Set by the HTTP API; empty: the user who runs the cluster."""
    category: str = ""
    """Category of the jobs; empty: as the manifests say."""


class Submitted(msgspec.Struct):
    """Result of a submission."""

    jobs: list[JobView]
    notices: list[str]
    """About documents that are no jobs."""


class RuleChanges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Rules to change, each as `name:key=value`; absent ones stay."""

    policy: str | None = None
    placement: str | None = None
    migration: str | None = None
    cpu_share: str | None = None
    reservation: str | None = None
    rate_limit_seconds: float | None = None

    @property
    def is_empty(self) -> bool:
        return self == RuleChanges()


class ScaleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """New bounds of a job's workers; absent ones stay."""

    minimum: int | None = None
    maximum: int | None = None


class MoveTarget(msgspec.Struct, forbid_unknown_fields=True):
    """Target of a manual move."""

    node: str
    by_checkpoint: bool = False


class ProgressRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Progress reported from outside the job."""

    step: int | None = None
    total: int | None = None
    metrics: dict[str, float] = {}
