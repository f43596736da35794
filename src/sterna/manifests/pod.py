"""A plain Pod as a job of one worker: how SpeCon's users submit training.

A serving pod (`SERVING_POD: "true"`) is no training job; whoever loads manifests leaves it out.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, model_validator

from sterna.manifests.fields import Fields, Metadata, note, sentence
from sterna.manifests.kubernetes import PodSpec, PodTemplate, TemplateMetadata, replica_of, restart_of
from sterna.model.job import JobSpec, ProgressSpec, RestartPolicy

SERVING = "SERVING_POD"


class Pod(Fields):
    """The manifest."""

    meaningless = frozenset({"status"})

    api_version: Literal["v1"]
    kind: Literal["Pod"]
    metadata: Metadata
    spec: PodSpec

    @model_validator(mode="after")
    def _can_run(self, info: ValidationInfo) -> Pod:
        first, *others = self.spec.containers
        if not first.command:
            what = "the first container has no command; images are not run here, so write what to run."
            raise sentence(what, "spec", "containers")
        for other in others:
            note(info, f"Only the first container is run; '{other.name}' is left out.")
        return self

    def job(self) -> JobSpec:
        name, spec = self.metadata.name, self.spec
        template = PodTemplate(metadata=TemplateMetadata(annotations=self.metadata.annotations), spec=spec)
        worker = replica_of("worker", 1, template, name)
        reports = [word for word in worker.command[1:] if word.endswith(".csv")]
        return JobSpec(
            name=name,
            kind="Pod",
            replicas=(worker,),
            minimum=1,
            maximum=1,
            request=1,
            restart=restart_of(spec.restart_policy, RestartPolicy.ON_FAILURE),
            grace_seconds=spec.termination_grace_period_seconds,
            deadline_seconds=spec.active_deadline_seconds,
            progress=ProgressSpec(csv=reports[0] if reports else ""),
        )
