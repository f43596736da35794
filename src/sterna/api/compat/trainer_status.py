"""Kubeflow Trainer's status protocol, which unmodified Hugging Face jobs speak."""

from __future__ import annotations

import math

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from sterna.api.responses import CurrentCaller, Service, call, check_may_change, read_json

router = APIRouter(tags=["other systems"])


class TrainerMetric(msgspec.Struct):
    """One metric of a trainer."""

    name: str
    value: str | float


class TrainerStatus(msgspec.Struct):
    """Kubeflow Trainer's `trainerStatus`."""

    progressPercentage: float | None = None  # noqa: N815
    metrics: list[TrainerMetric] = []


class StatusReport(msgspec.Struct):
    """Body of a status report."""

    trainerStatus: TrainerStatus  # noqa: N815


@router.post("/api/v1/jobs/{name}/trainer-status", response_class=PlainTextResponse)
@router.post("/apis/trainer.kubeflow.org/{version}/namespaces/{namespace}/trainjobs/{name}/status")
async def trainer_status(name: str, request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Kubeflow Trainer's status protocol."""
    status = (await read_json(request, StatusReport)).trainerStatus
    await check_may_change(service, name, caller)
    metrics = {each.name: value for each in status.metrics if (value := _number(each.value)) is not None}
    step, total = metrics.pop("current_step", None), metrics.pop("total_steps", None)
    if step is None and status.progressPercentage is not None:
        total = total or 100.0
        step = total * status.progressPercentage / 100.0
    await call(service.report, name, _whole(step), _whole(total), metrics)
    return PlainTextResponse("Ok")


def _number(value: str | float) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
