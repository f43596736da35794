"""Sentences about failures of a job: why it waits until when, crash loops, and pods that cannot start. Pure.

Each names what failed, where, and what to do. They are made from persisted state and pods, so that the next leader
writes the same ones.
"""

from __future__ import annotations

from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState
from sterna.backends.kubernetes.lifecycle.conditions import format_time
from sterna.backends.kubernetes.lifecycle.verdict import restart_number
from sterna.control.failures import CRASH_LOOP, describe_exit

_CRASH_LOOP_REASON = "CrashLoopBackOff"
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_START_ERRORS = {
    "ErrImagePull": "its image{image} cannot be pulled ({reason}); check the image's name and the pull secret",
    "ImagePullBackOff": "its image{image} cannot be pulled ({reason}); check the image's name and the pull secret",
    "ErrImageNeverPull": "its image{image} is not on the node and is never pulled ({reason}); load it or change the "
    "pull policy",
    "InvalidImageName": "the name of its image{image} is invalid ({reason}); correct it",
    "CreateContainerConfigError": "it refers to a ConfigMap or Secret that is missing ({reason}); create it",
    "CreateContainerError": "its container cannot be created ({reason}); check its command and volumes",
    "RunContainerError": "its command cannot be executed ({reason}); check that the image holds it",
}
"""What keeps a container from starting, by the kubelet's reason."""


def waiting_sentence(job: KubeJob, sentence: str, now: float) -> str:
    """Return why an unassigned job waits: its back-off, or `sentence` with the limit that its failures put on it."""
    persisted = job.persisted
    if not persisted.failures:
        return sentence
    what = f"{persisted.failure_cause or describe_exit(persisted.exit_code)}{_in_a_row(persisted)}"
    if persisted.not_before > now:
        counted = f" ({restart_number(job, persisted.restarts)})" if persisted.exit_code is not None else ""
        place = "; it keeps its place in the queue" if persisted.ran_well else ""
        advice = f"; {_ADVICE}" if _is_crash_loop(persisted) else ""
        return f"waits: back-off until {format_time(persisted.not_before)}{counted}: {what}{place}{advice}."
    if persisted.may_preempt or not sentence.startswith("waits"):
        return sentence
    return f"{sentence.removesuffix('.')}; it starts on free capacity only, because {what}."


def crash_loop_sentence(persisted: PersistedState) -> str:
    return f"It is in a crash loop, {persisted.failures} failures in a row; {_ADVICE}."


_ADVICE = "look into its log, then correct its command, image or resources"


def _is_crash_loop(persisted: PersistedState) -> bool:
    return persisted.failures >= CRASH_LOOP and persisted.exit_code is not None


def _in_a_row(persisted: PersistedState) -> str:
    if persisted.failures < 2:
        return ""
    return f", {'a crash loop of ' if _is_crash_loop(persisted) else ''}{persisted.failures} failures in a row"


def pod_start_error(job: KubeJob) -> str:
    """Return a sentence if the kubelet reports why a bound pod does not start or restarts it again and again."""
    for key in sorted(job.pods):
        pod = job.pods[key]
        if pod.is_terminated or pod.is_deleting:
            continue
        if pod.reason == _CRASH_LOOP_REASON:
            return _kubelet_crash_loop(pod)
        if pod.state is PodState.PENDING and pod.reason not in _STARTING:
            who = f"{pod.type}-{pod.index} cannot start on {pod.node or 'its node'}"
            known = _START_ERRORS.get(pod.reason)
            if known is None:
                return f"waits: {who} yet ({pod.reason})."
            return f"waits: {who}: {known.format(image=_image(job, pod), reason=pod.reason)}."
    return ""


def _kubelet_crash_loop(pod: PodRow) -> str:
    last = f", the last time with {describe_exit(pod.last_exit_code)}" if pod.last_exit_code is not None else ""
    times = f"{pod.restarts} restarts{last}"
    return f"crash loop: {pod.type}-{pod.index} fails again and again on {pod.node} ({times}); {_ADVICE}."


def _image(job: KubeJob, pod: PodRow) -> str:
    """Return the image of the first container of a pod's template, quoted; empty if there is no template."""
    template = job.parsed_job.templates.get(job.parsed_job.framework_name(pod.type, pod.index)[0], {})
    containers = template.get("spec", {}).get("containers") or [{}]
    image = containers[0].get("image")
    return f" '{image}'" if image else ""
