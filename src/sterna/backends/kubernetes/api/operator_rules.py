"""The rules that an operator decides by, as its Lease tells them to whoever asks why."""

from __future__ import annotations

from sterna.control.cluster_service import PolicyView
from sterna.settings import OperatorSettings
from sterna.wiring import preferred_placement


class OperatorRules(PolicyView, omit_defaults=True):
    """Rules, as the Lease tells them."""

    policy_for: str = ""
    """Other policies for types of GPUs: `TYPE=POLICY`, with spaces between them."""


def operator_rules(settings: OperatorSettings) -> OperatorRules:
    """The rules of these settings, as whoever asks is told them."""
    return OperatorRules(
        settings.policy,
        settings.placement or preferred_placement(settings.policy),
        settings.migration,
        settings.cpu_share,
        settings.reservation,
        settings.rate_limit_seconds,
        settings.policy_for,
    )
