"""`TrainingJob`, `sterna.dev/v1alpha1`: Sterna's own manifest, ten lines for an elastic job.

Written for people: numbers need no quotes, a command may be one line of text, `workers: 1:4` says the bounds. What a
cluster can hold is not judged here.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sterna.manifests.fields import ByteCount, Fields, Metadata, Seconds, Thousandths, expected, sentence
from sterna.model.job import LEAST_PRIORITY, MOST_PRIORITY, JobSpec, ProgressSpec, ReplicaSpec, Resizing, RestartPolicy

KIND = "TrainingJob"
VERSIONS = ("sterna.dev/v1alpha1",)

_BOUNDS = re.compile(r"\s*(\d{1,9})\s*(?::\s*(\d{1,9})\s*)?", re.ASCII)
_MOST_WORKERS = 100_000


def _worker_bounds(value: object) -> object:
    """`4` and `1:4` in the form of a mapping."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    if isinstance(value, str):
        match = _BOUNDS.fullmatch(value)
        if match is None:
            raise expected("a number of workers, or the fewest and the most such as 1:4")
        return {"min": int(match[1]), "max": int(match[2] or match[1])}
    return value


def _words(value: object) -> object:
    """A command as a list of text; one line of text is split as a shell would."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            raise expected("a command whose quotes are closed") from None
    if isinstance(value, list):
        return [_as_text(word) for word in value]
    raise expected("a command, as a list such as [python, train.py]")


def _as_text(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _variables(value: object) -> object:
    """A mapping, or Kubernetes' list of names and values."""
    if isinstance(value, list):
        pairs = [(each.get("name"), each.get("value", "")) for each in value if isinstance(each, dict)]
        if len(pairs) != len(value) or not all(isinstance(name, str) for name, _ in pairs):
            raise expected("variables such as {LR: 0.1}, or a list of {name: LR, value: '0.1'}")
        value = dict(pairs)
    if isinstance(value, dict):
        return {name: _as_text(each) for name, each in value.items()}
    return value


def _patterns(value: object) -> object:
    patterns = [value] if isinstance(value, str) else value
    for pattern in patterns if isinstance(patterns, list) else ():
        try:
            has_groups = bool(re.compile(pattern).groupindex)
        except (re.error, TypeError, RecursionError, OverflowError):
            has_groups = False
        if not has_groups:
            raise expected(r"a regular expression with named groups such as step=(?P<step>\d+)")
    return patterns


Command = Annotated[list[str], BeforeValidator(_words), Field(min_length=1)]
Variables = Annotated[dict[str, str], BeforeValidator(_variables)]


class Workers(Fields):
    """How few, how many, and how many were asked for."""

    min: Annotated[int, Field(ge=1, le=_MOST_WORKERS)] = 1
    max: Annotated[int, Field(ge=1, le=_MOST_WORKERS)] | None = None
    request: Annotated[int, Field(ge=1, le=_MOST_WORKERS)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Workers:
        if self.min > self.most:
            raise sentence(f"min {self.min} is more than max {self.most}; make it at most as large.", "min")
        if not self.min <= self.asked <= self.most:
            raise sentence(f"request {self.asked} is not between min {self.min} and max {self.most}.", "request")
        return self

    @property
    def most(self) -> int:
        return self.min if self.max is None else self.max

    @property
    def asked(self) -> int:
        return self.min if self.request is None else self.request


class Needs(Fields):
    """What one replica needs. Of CPUs nothing is asked for unless it is said: what that means is for the cluster to
    say, which knows whether its nodes are shared."""

    cpu: Thousandths = 0
    memory: ByteCount = 0
    gpu: Thousandths = 0


class Progress(Fields):
    """How the job tells of its progress, if not by the agent."""

    stdout: Annotated[list[str], BeforeValidator(_patterns)] = Field(default_factory=list)
    csv: str = ""
    tensorboard: str = ""
    metric: str = ""
    goal: Literal["", "min", "max"] = ""
    total: Annotated[int, Field(ge=0)] = 0

    @property
    def spec(self) -> ProgressSpec:
        return ProgressSpec(tuple(self.stdout), self.csv, self.tensorboard, self.metric, self.goal, self.total)


class ParameterServers(Fields):
    """Replicas of type `ps`, which stay while workers come and go."""

    count: Annotated[int, Field(ge=1, le=_MOST_WORKERS)] = 1
    command: Command
    env: Variables = Field(default_factory=dict)
    resources: Needs = Needs()


class TrainingJobSpec(Fields):
    """What to run, how many, what they need."""

    command: Command
    workers: Annotated[Workers, BeforeValidator(_worker_bounds)] = Workers()
    resources: Needs = Needs()
    env: Variables = Field(default_factory=dict)
    working_dir: str = ""
    progress: Progress = Field(default_factory=Progress)
    grace: Seconds = 30.0
    priority: Annotated[int, Field(ge=LEAST_PRIORITY, le=MOST_PRIORITY)] = 0
    category: str = ""
    restart_policy: Literal["Never", "OnFailure", "ExitCode"] = "OnFailure"
    backoff_limit: Annotated[int, Field(ge=0, le=1_000_000)] = 6
    resizing: Literal["restart", "in-place", "torchrun"] = "restart"
    ttl: Seconds | None = None
    deadline: Seconds | None = None
    parameter_servers: ParameterServers | None = None


class TrainingJob(Fields):
    """The manifest."""

    meaningless = frozenset({"status"})

    api_version: Literal["sterna.dev/v1alpha1"]
    kind: Literal["TrainingJob"]
    metadata: Metadata
    spec: TrainingJobSpec

    def job(self) -> JobSpec:
        spec = self.spec
        return JobSpec(
            name=self.metadata.name,
            kind=KIND,
            replicas=tuple(self._replicas()),
            minimum=spec.workers.min,
            maximum=spec.workers.most,
            request=spec.workers.asked,
            priority=spec.priority,
            category=spec.category,
            restart=RestartPolicy(spec.restart_policy),
            backoff_limit=spec.backoff_limit,
            grace_seconds=spec.grace,
            resizing=Resizing(spec.resizing),
            progress=spec.progress.spec,
            ttl_seconds=spec.ttl,
            deadline_seconds=spec.deadline,
        )

    def _replicas(self) -> list[ReplicaSpec]:
        spec, servers = self.spec, self.spec.parameter_servers
        workers = _replica("worker", spec.workers.asked, spec.command, spec.env, spec.resources, spec.working_dir)
        if servers is None:
            return [workers]
        env = spec.env | servers.env
        return [_replica("ps", servers.count, servers.command, env, servers.resources, spec.working_dir), workers]


def _replica(
    type_: str, count: int, command: list[str], env: dict[str, str], needs: Needs, working_dir: str
) -> ReplicaSpec:
    variables: Any = tuple(env.items())
    return ReplicaSpec(type_, count, tuple(command), variables, working_dir, needs.gpu, needs.cpu, needs.memory)
