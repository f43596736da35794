"""`kubectl sterna`: the commands on a running cluster, as a plugin of kubectl.

kubectl runs the program `kubectl-sterna` with the arguments after `sterna`. kubectl's own options (`--context`,
`--namespace`, `-n`, `-A`, `--kubeconfig`) may also precede the command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from sterna.cli.connect.target import PLUGIN
from sterna.cli.main import GROUPS, main, run_as

COMMANDS = (
    *("submit", "create", "get", "describe", "logs", "top", "wait", "explain", "history", "scale", "migrate", "delete"),
    *("cordon", "drain", "uncordon", "policy", "policies", "version"),
)
_WITH_VALUE = ("--context", "--kubeconfig", "--namespace", "-n")
_ALONE = ("--all-namespaces", "-A")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    ordered = _move_options(list(sys.argv[1:] if arguments is None else arguments))
    return main(ordered, partial(run_as, PLUGIN, COMMANDS))


def _move_options(arguments: list[str]) -> list[str]:
    """Put the command first, then kubectl's options that preceded it."""
    before: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name, _, value = rest[0].partition("=")
        if name in _WITH_VALUE:
            size = 1 if value or len(rest) < 2 else 2
        elif name in _ALONE:
            size = 1
        else:
            break
        before, rest = before + rest[:size], rest[size:]
    words = 2 if rest and rest[0] in GROUPS else 1
    return [*rest[:words], *before, *rest[words:]]
