"""The launcher's view of an MPI job on one machine: a host file, a discovery script, and variables that name them.

Kubeflow's MPI operator mounts both files under `/etc/mpi`; here every attempt has its own, so a launcher's command that
names the mounted paths is rewritten to read them from the environment.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

from sterna.kinds.environment.gang import Gang, GangMember
from sterna.kinds.kind import AttemptFile
from sterna.model.job import JobSpec

HOSTFILE, DISCOVER_HOSTS = "hostfile", "discover_hosts.sh"

_VARIABLES = {f"/etc/mpi/{HOSTFILE}": "STERNA_HOSTFILE", f"/etc/mpi/{DISCOVER_HOSTS}": "STERNA_DISCOVER_HOSTS"}
_MOUNTED = re.compile("({})(?![\\w.])".format("|".join(map(re.escape, _VARIABLES))))
_SHELLS = ("sh", "bash", "dash", "zsh")


def mpi_environment(spec: JobSpec, member: GangMember, gang: Gang) -> dict[str, str]:
    """`gang.size` counts the workers that the launcher may start."""
    hostfile = f"{gang.folder}/{HOSTFILE}"
    return {
        "STERNA_HOSTFILE": hostfile,
        "STERNA_DISCOVER_HOSTS": f"{gang.folder}/{DISCOVER_HOSTS}",
        "STERNA_SIZE": str(gang.size),
        "OMPI_MCA_orte_default_hostfile": hostfile,
        "PRTE_MCA_prte_default_hostfile": hostfile,
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def mpi_files(workers: int) -> tuple[AttemptFile, ...]:
    return (
        AttemptFile(HOSTFILE, f"localhost slots={workers}\n"),
        AttemptFile(DISCOVER_HOSTS, f"#!/bin/sh\necho localhost:{workers}\n", 0o755),
    )


def with_local_paths(command: tuple[str, ...]) -> tuple[str, ...]:
    """Replace the mounted paths in a command by the variables that name the attempt's files."""
    if not any(_MOUNTED.search(word) for word in command):
        return command
    if len(command) > 2 and PurePosixPath(command[0]).name in _SHELLS and command[1].endswith("c"):
        script = _MOUNTED.sub(lambda found: f"${{{_VARIABLES[found[0]]}}}", command[2])
        return (*command[:2], script, *command[3:])
    return ("/bin/sh", "-c", "exec " + " ".join(map(_quote, command)))


def _quote(word: str) -> str:
    """Quote a word for a shell, except the variables in it."""
    parts = _MOUNTED.split(word)
    format_value = [f'"${_VARIABLES[part]}"' if part in _VARIABLES else shlex.quote(part) for part in parts if part]
    return "".join(format_value) or "''"
