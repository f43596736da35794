"""Cost of the operator's API client: CPU of this process per write, with nothing else running in it."""

from __future__ import annotations

import time
from pathlib import Path

from sterna.backends.kubernetes.api.resources import Inbox, Verb, Write, WriteResult
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from sterna.kinds.resource import PODS
from tests.bench.kubernetes_load import job_name, plain_pod, pod_body

PATIENCE_SECONDS = 120.0


def client_cpu_ms(kubeconfig: Path, count: int, nodes: int) -> float:
    """Measure the CPU of creating `count` pods, all sent at once; bodies are encoded before."""
    template = plain_pod()
    writes = [
        Write(
            Verb.CREATE,
            PODS,
            "default",
            f"{job_name(number)}-worker-0",
            pod_body(template, number, f"node-{number % nodes:04}"),
        )
        for number in range(count)
    ]
    client, inbox = Client(access_of(str(kubeconfig))), Inbox()
    try:
        client.follow([], inbox)
        before, deadline = time.process_time(), time.monotonic() + PATIENCE_SECONDS
        client.send(writes)
        answers: list[WriteResult] = []
        while len(answers) < count and time.monotonic() < deadline:
            time.sleep(0.05)  # a wait would wake up for every single answer, and be measured
            answers += [each for each in inbox.take() if isinstance(each, WriteResult)]
        spent = time.process_time() - before
    finally:
        client.close()
    refused = [each for each in answers if not each.is_done]
    if refused or len(answers) < count:
        raise RuntimeError(f"{len(answers)} of {count} answered, {len(refused)} refused: {refused[:1]}")
    return spent / count * 1000
