"""The Kubernetes cluster that a command means.

Its options (`--context`, `-n` ..) are added to every command that has `--state` and `--server`, so that no command has
to declare them. As a kubectl plugin (`kubectl sterna`), a command means the current context of the kubeconfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from sterna.errors import UserError

PLUGIN = "kubectl sterna"
"""Program name as a plugin of kubectl."""
CONTEXT = "STERNA_CONTEXT"

_META_KEY = "sterna.target"
_CLUSTER_OPTIONS = frozenset({"state", "server"})
"""Options of every command that speaks to a running cluster."""


class KubernetesTarget(NamedTuple):
    """A Kubernetes cluster and namespace; empty fields are taken from the kubeconfig."""

    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    is_everywhere: bool = False
    is_plugin: bool = False
    flags: tuple[str, ...] = ()
    """The options as the user typed them."""

    def command_line(self, words: str) -> str:
        """Return a command line for the same cluster."""
        return f"{PLUGIN if self.is_plugin else 'sterna'} {' '.join([words, *self.flags])}"


def add_options(command: click.Command) -> None:
    """Add the Kubernetes options to a command and its subcommands."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            add_options(each)
    if {parameter.name for parameter in command.params} >= _CLUSTER_OPTIONS:
        command.params += _options()


def _options() -> list[click.Option]:
    stored: dict[str, Any] = {"expose_value": False, "callback": _store}
    return [
        click.Option(
            ["--context"], metavar="NAME", envvar=CONTEXT, help="Kubernetes cluster: a context of your kubeconfig.",
            **stored,
        ),
        click.Option(
            ["--kubeconfig"], metavar="FILE", help="Kubeconfig file.  [default: as kubectl]", **stored
        ),
        click.Option(
            ["--namespace", "-n"], metavar="NAME", help="Kubernetes namespace.  [default: the context's]", **stored
        ),
        click.Option(["--all-namespaces", "-A"], is_flag=True, help="All namespaces (Kubernetes).", **stored),
    ]  # fmt: skip


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    context.meta.setdefault(_META_KEY, {})[parameter.name] = value
    return value


def find_target(state: str | None, server: str | None) -> KubernetesTarget | None:
    """Return the Kubernetes cluster that the running command means; None: another cluster."""
    context = click.get_current_context(silent=True)
    given: Mapping[str, Any] = context.meta.get(_META_KEY, {}) if context is not None else {}
    if context is None or not given:
        return None
    is_plugin = context.find_root().info_name == PLUGIN
    is_typed = bool(given["kubeconfig"]) or (bool(given["context"]) and _is_typed(context, "context"))
    other = "--server" if server else "--state" if state else ""
    if other and is_typed:
        option = "--context" if given["context"] else "--kubeconfig"
        raise UserError(f"{option} names a Kubernetes cluster and {other} another one; give one of them.")
    flags = _flags_on_command_line(context, given)
    if not other and (is_typed or given["context"] or is_plugin):
        place = given["namespace"] or "", bool(given["all_namespaces"])
        return KubernetesTarget(given["context"] or "", given["kubeconfig"] or "", *place, is_plugin, flags)
    if flags:
        raise UserError(f"{flags[0]} is for Kubernetes clusters; add --context NAME, or leave it out.")
    return None


def _is_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _flags_on_command_line(context: click.Context, given: Mapping[str, Any]) -> tuple[str, ...]:
    flags: list[str] = []
    for name, flag in (("context", "--context"), ("kubeconfig", "--kubeconfig"), ("namespace", "-n")):
        if given[name] and _is_typed(context, name):
            flags += [flag, given[name]]
    return (*flags, "-A") if given["all_namespaces"] else tuple(flags)
