"""Which rules the operator of a cluster decides by, and whether there is one at all: its Lease tells."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.operator_rules import OperatorRules, operator_rules
from sterna.backends.kubernetes.api.resources import LEASES, Followed
from sterna.backends.kubernetes.leader import LeaseSpec
from sterna.backends.kubernetes.query.reader import ApiReader
from sterna.errors import UserError
from sterna.kinds.labels import RULES
from sterna.kinds.objects import Meta
from sterna.kinds.parsing.job_builder import seconds_of
from sterna.settings import LeaseSettings, OperatorSettings

_NAMESPACE = "sterna-system"
_STALE_SECONDS = 60.0
_USUAL = OperatorSettings()


class Held(msgspec.Struct):
    """The Lease, as far as others read it."""

    metadata: Meta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class Told(NamedTuple):
    """Rules, and what is wrong with them, if they are only the usual ones."""

    rules: OperatorRules
    notice: str = ""


def usual_rules() -> OperatorRules:
    return operator_rules(_USUAL)


def rules_in(asking: ApiReader, now: float) -> Told:
    """Of the operator that acts now."""
    try:
        lease = _lease(asking)
    except UserError as error:
        what = f"Which rules the operator goes by cannot be seen, so the usual ones are asked. {error}"
        return Told(usual_rules(), what)
    if lease is None:
        what = "No operator has ever held the Lease, so the usual rules are asked; see that one runs: sterna operator."
        return Told(usual_rules(), what)
    silent_seconds = now - seconds_of(lease.spec.renew_time)
    if not lease.spec.holder_identity or silent_seconds > _STALE_SECONDS:
        silence = f" for {silent_seconds:.0f} s" if lease.spec.renew_time else ""
        return Told(usual_rules(), f"No operator has renewed its Lease{silence}: nobody decides; see that one runs.")
    try:
        return Told(msgspec.json.decode(lease.metadata.annotations[RULES], type=OperatorRules))
    except (KeyError, msgspec.DecodeError):
        return Told(usual_rules(), "The operator does not say which rules it goes by, so the usual ones are asked.")


def _lease(asking: ApiReader) -> Held | None:
    """Wherever it is installed; where one may not look everywhere, in its usual place."""
    name = LeaseSettings().name
    try:
        found = asking.listed(Followed(LEASES, Held, fields=f"metadata.name={name}"))
    except UserError:
        return asking.found(LEASES, Held, _NAMESPACE, name)
    return max(found, key=lambda lease: lease.spec.renew_time or "", default=None)
