"""The rules that an operator decides by, as it publishes them in an annotation of its Lease."""

from __future__ import annotations

from sterna.service.views import PolicyView
from sterna.settings import OperatorSettings
from sterna.wiring import preferred_placement


def operator_rules(settings: OperatorSettings) -> PolicyView:
    """Return the rules of an operator with these settings."""
    return PolicyView(
        settings.policy,
        settings.placement or preferred_placement(settings.policy),
        settings.migration,
        settings.cpu_share,
        settings.reservation,
        settings.rate_limit_seconds,
        settings.policy_for,
    )
