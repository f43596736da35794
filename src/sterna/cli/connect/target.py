"""Which cluster a command means: one of this machine, one at an address, or a Kubernetes cluster of the kubeconfig.

Options for the last are added here to every command that asks a cluster (those with `--state` and `--server`), so that
no command has to know of them. Called as `kubectl sterna`, a command always means the cluster that kubectl would ask.
Nothing heavy is imported: most commands ask a cluster of this machine and are over at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from sterna.errors import UserError

PLUGIN = "kubectl sterna"
"""How the program is called as a plugin of kubectl."""
CONTEXT = "STERNA_CONTEXT"

_KEPT = "sterna.where"
_ASKS = frozenset({"state", "server"})
"""The options of every command that asks a cluster."""


class Where(NamedTuple):
    """A Kubernetes cluster, and where in it to look; empty: as the kubeconfig says."""

    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    is_everywhere: bool = False
    is_plugin: bool = False
    flags: tuple[str, ...] = ()
    """As they were typed."""

    def as_typed(self, words: str) -> str:
        """A command on the same cluster, for people to type."""
        return f"{PLUGIN if self.is_plugin else 'sterna'} {' '.join([words, *self.flags])}"


def add_options(command: click.Command) -> None:
    """Let a command, and all below it, take a Kubernetes cluster."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            add_options(each)
    if {parameter.name for parameter in command.params} >= _ASKS:
        command.params += _options()


def _options() -> list[click.Option]:
    kept: dict[str, Any] = {"expose_value": False, "callback": _keep}
    return [
        click.Option(
            ["--context"], metavar="NAME", envvar=CONTEXT, help="A Kubernetes cluster: a context of your kubeconfig.",
            **kept,
        ),
        click.Option(["--kubeconfig"], metavar="FILE", help="Another kubeconfig than yours.", **kept),
        click.Option(["--namespace", "-n"], metavar="NAME", help="Its namespace.  [default: the context's]", **kept),
        click.Option(["--all-namespaces", "-A"], is_flag=True, help="All its namespaces.", **kept),
    ]  # fmt: skip


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    context.meta.setdefault(_KEPT, {})[parameter.name] = value
    return value


def chosen(state: str | None, server: str | None) -> Where | None:
    """The Kubernetes cluster that the running command means; None if it means another."""
    context = click.get_current_context(silent=True)
    given: Mapping[str, Any] = context.meta.get(_KEPT, {}) if context is not None else {}
    if context is None or not given:
        return None
    is_plugin = context.find_root().info_name == PLUGIN
    is_typed = bool(given["kubeconfig"]) or (bool(given["context"]) and _is_typed(context, "context"))
    other = "--server" if server else "--state" if state else ""
    if other and is_typed:
        option = "--context" if given["context"] else "--kubeconfig"
        raise UserError(f"{option} names a Kubernetes cluster and {other} another one; give one of them.")
    flags = _typed_flags(context, given)
    if not other and (is_typed or given["context"] or is_plugin):
        place = given["namespace"] or "", bool(given["all_namespaces"])
        return Where(given["context"] or "", given["kubeconfig"] or "", *place, is_plugin, flags)
    if flags:
        raise UserError(f"{flags[0]} is for Kubernetes clusters; add --context NAME, or leave it out.")
    return None


def _is_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _typed_flags(context: click.Context, given: Mapping[str, Any]) -> tuple[str, ...]:
    flags: list[str] = []
    for name, flag in (("context", "--context"), ("kubeconfig", "--kubeconfig"), ("namespace", "-n")):
        if given[name] and _is_typed(context, name):
            flags += [flag, given[name]]
    return (*flags, "-A") if given["all_namespaces"] else tuple(flags)
