"""Prometheus metrics of jobs and nodes, with the same names for every cluster.

Computed from views when `/metrics` is read. Metrics of one kind of cluster only are defined with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric

from sterna import __version__
from sterna.service.views import JobView, NodeView

_STATES = ("waiting", "running", "stopping", "completed", "failed", "deleting")
_ACTIVE = frozenset({"waiting", "running", "stopping"})
_NODE_COLUMNS = {
    "cpus": "CPU cores of a node.",
    "cpus_free": "Free CPU cores.",
    "devices": "Devices of a node.",
    "devices_free": "Free devices.",
    "memory_bytes": "Memory of a node.",
    "memory_free_bytes": "Free memory.",
}


def of_version() -> Metric:
    return InfoMetricFamily("sterna", "Which Sterna this is.", {"version": __version__})


def of_jobs(jobs: Sequence[JobView]) -> Iterator[Metric]:
    """Yield totals over all jobs, and metrics of each job that has not ended."""
    states = Counter(job.state for job in jobs)
    family = GaugeMetricFamily("sterna_jobs", "Jobs by state.", labels=["state"])
    for state in _STATES:
        family.add_metric([state], states[state])
    yield family
    yield GaugeMetricFamily("sterna_workers", "Workers that run.", value=sum(job.workers for job in jobs))
    lost = sum(job.lost_seconds for job in jobs)
    yield GaugeMetricFamily("sterna_lost_work_seconds", "Work thrown away by the jobs that are known.", value=lost)
    moves = sum(job.moves for job in jobs)
    yield GaugeMetricFamily("sterna_moves", "Moves of the jobs that are known.", value=moves)
    yield from _of_each([job for job in jobs if job.state in _ACTIVE])


def _of_each(jobs: Sequence[JobView]) -> Iterator[Metric]:
    """Yield metrics per job; jobs that have ended are left out, because their labels would accumulate."""
    workers = GaugeMetricFamily("sterna_job_workers", "Workers of a job.", labels=["job"])
    waited = GaugeMetricFamily("sterna_job_waited_seconds", "How long a job has waited in all.", labels=["job"])
    done = GaugeMetricFamily("sterna_job_progress_ratio", "Steps done of all.", labels=["job"])
    value = GaugeMetricFamily("sterna_job_metric", "The metric that counts for a job.", labels=["job", "metric"])
    eta = GaugeMetricFamily("sterna_job_eta_seconds", "Expected time to the end.", labels=["job"])
    for job in jobs:
        workers.add_metric([job.name], job.workers)
        waited.add_metric([job.name], job.waited_seconds)
        if job.step is not None and job.total:
            done.add_metric([job.name], job.step / job.total)
        if job.value is not None:
            value.add_metric([job.name, job.metric], job.value)
        if job.eta_seconds is not None:
            eta.add_metric([job.name], job.eta_seconds)
    yield from (workers, waited, done, value, eta)


def of_nodes(nodes: Sequence[NodeView]) -> Iterator[Metric]:
    for column, words in _NODE_COLUMNS.items():
        family = GaugeMetricFamily(f"sterna_node_{column}", words, labels=["node"])
        for node in nodes:
            family.add_metric([node.name], getattr(node, column))
        yield family
    family = GaugeMetricFamily("sterna_node_ready", "Whether jobs may start on a node.", labels=["node"])
    for node in nodes:
        family.add_metric([node.name], node.state == "ready")
    yield family
