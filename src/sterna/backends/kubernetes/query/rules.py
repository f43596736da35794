"""The rules of a cluster's operator, read from an annotation of its Lease."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.operator_rules import operator_rules
from sterna.backends.kubernetes.api.resources import LEASES, Followed
from sterna.backends.kubernetes.leader import LeaseSpec
from sterna.backends.kubernetes.query.reader import ApiReader
from sterna.errors import UserError
from sterna.kinds.labels import RULES
from sterna.kinds.objects import Meta
from sterna.kinds.parsing.job_builder import parse_timestamp
from sterna.service.views import PolicyView
from sterna.settings import LeaseSettings, OperatorSettings

_NAMESPACE = "sterna-system"
_STALE_SECONDS = 60.0
_DEFAULTS = OperatorSettings()


class LeaseObject(msgspec.Struct):
    """The fields of a Lease that are read here."""

    metadata: Meta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class CurrentRules(NamedTuple):
    """Rules and, if they are the defaults, the reason why those of the operator are not known."""

    rules: PolicyView
    notice: str = ""


def default_rules() -> PolicyView:
    return operator_rules(_DEFAULTS)


def current_rules(reader: ApiReader, now: float) -> CurrentRules:
    """Return the rules of the operator that holds the Lease."""
    try:
        lease = _lease(reader)
    except UserError as error:
        what = f"Which rules the operator goes by cannot be seen, so the usual ones are asked. {error}"
        return CurrentRules(default_rules(), what)
    if lease is None:
        what = "No operator has ever held the Lease, so the usual rules are asked; see that one runs: sterna operator."
        return CurrentRules(default_rules(), what)
    silent_seconds = now - parse_timestamp(lease.spec.renew_time)
    if not lease.spec.holder_identity or silent_seconds > _STALE_SECONDS:
        silence = f" for {silent_seconds:.0f} s" if lease.spec.renew_time else ""
        what = f"No operator has renewed its Lease{silence}: no job is scheduled; see that one runs."
        return CurrentRules(default_rules(), what)
    try:
        return CurrentRules(msgspec.json.decode(lease.metadata.annotations[RULES], type=PolicyView))
    except (KeyError, msgspec.DecodeError):
        what = "The operator does not say which rules it goes by, so the usual ones are asked."
        return CurrentRules(default_rules(), what)


def _lease(reader: ApiReader) -> LeaseObject | None:
    """Find the Lease in any namespace; without the right to list them all, in the default one."""
    name = LeaseSettings().name
    try:
        found = reader.list_all(Followed(LEASES, LeaseObject, fields=f"metadata.name={name}"))
    except UserError:
        return reader.get(LEASES, LeaseObject, _NAMESPACE, name)
    return max(found, key=lambda lease: lease.spec.renew_time or "", default=None)
