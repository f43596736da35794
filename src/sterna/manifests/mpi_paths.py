"""Files that Kubeflow's MPI operator mounts into a launcher, replaced by those that the local cluster writes for it.

`/etc/mpi/hostfile` and `/etc/mpi/discover_hosts.sh` are named in the environment here: every attempt has its own.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

VARIABLES = {"/etc/mpi/hostfile": "STERNA_HOSTFILE", "/etc/mpi/discover_hosts.sh": "STERNA_DISCOVER_HOSTS"}

_MOUNTED = re.compile("({})(?![\\w.])".format("|".join(map(re.escape, VARIABLES))))
_SHELLS = ("sh", "bash", "dash", "zsh")


def with_local_paths(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command, reading those files where they are; as it is if it names none of them."""
    if not any(_MOUNTED.search(word) for word in command):
        return command
    if len(command) > 2 and PurePosixPath(command[0]).name in _SHELLS and command[1].endswith("c"):
        script = _MOUNTED.sub(lambda found: f"${{{VARIABLES[found[0]]}}}", command[2])
        return (*command[:2], script, *command[3:])
    return ("/bin/sh", "-c", "exec " + " ".join(map(_word, command)))


def _word(word: str) -> str:
    """A word for a shell, quoted but for the variables in it."""
    parts = _MOUNTED.split(word)
    shown = [f'"${VARIABLES[part]}"' if part in VARIABLES else shlex.quote(part) for part in parts if part]
    return "".join(shown) or "''"
