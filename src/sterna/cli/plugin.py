"""`kubectl sterna`: the commands that ask a cluster, as a plugin of kubectl.

kubectl runs the program `kubectl-sterna` with everything that follows `sterna`. Its own options (`--context`,
`--namespace`, `-n`, `-A`, `--kubeconfig`) may stand before the command here, as people type them; the cluster is the
current one of the kubeconfig unless they name another.
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
    """Run one command; its exit code."""
    in_order = _in_order(list(sys.argv[1:] if arguments is None else arguments))
    return main(in_order, partial(run_as, PLUGIN, COMMANDS))


def _in_order(arguments: list[str]) -> list[str]:
    """The command first, then kubectl's options that stood before it."""
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
