"""PriorityClasses of the cluster, and the priority that a job takes from the one its pod template names."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from sterna.backends.kubernetes.api.objects import PriorityClass
from sterna.backends.kubernetes.cache.job_index import JobIndex
from sterna.backends.kubernetes.cache.work_queue import WorkQueue
from sterna.kinds.parsed_job import ParsedJob
from sterna.model.job import priority_of_class


class PriorityClasses:
    """Values by name; empty where Sterna may not list PriorityClasses, apart from those of Kubernetes itself."""

    def __init__(self, jobs: JobIndex, work_queue: WorkQueue) -> None:
        self._jobs, self._work_queue = jobs, work_queue
        self._values: dict[str, int] = {}

    def update(self, seen: PriorityClass, is_there: bool) -> None:
        """Add, change or remove a class, and with it the priority of the jobs that name it."""
        name = seen.metadata.name
        if is_there:
            self._values[name] = seen.value
        else:
            self._values.pop(name, None)
        for entry in self._jobs.entries.values():
            if entry.parsed_job.spec.priority_class == name:
                entry.job.parsed_job = self.resolve(entry.parsed_job)
                self._work_queue.mark_row_stale(entry)
                self._work_queue.request_round()

    def resolve(self, parsed_job: ParsedJob) -> ParsedJob:
        """Return the job with the value of its PriorityClass as its priority, 0 while the class is unknown."""
        spec = parsed_job.spec
        if not spec.priority_class:
            return parsed_job
        value = priority_of_class(spec.priority_class, self._values) or 0
        if value == spec.priority:
            return parsed_job
        return structs.replace(parsed_job, spec=replace(spec, priority=value))
