"""`sterna submit`: run a command as a job, without a manifest."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from sterna.cli.connect.client import ServerUrl, State, client
from sterna.cli.connect.target import Where, chosen
from sterna.errors import UserError
from sterna.model.job import LEAST_PRIORITY, MOST_PRIORITY

SETTINGS = {"allow_interspersed_args": False}
"""Options end where the command begins, with or without `--`."""

Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What every worker runs.")]
Name = Annotated[str, typer.Option("--name", help="The job's name.  [default: from the command]")]
Workers = Annotated[str, typer.Option("--workers", metavar="N|MIN:MAX", help="How many workers.")]
Cpus = Annotated[
    str,
    typer.Option(
        "--cpus", help="Cores of each worker: 2, 0.5.  [default: 1; on shared nodes none]", show_default=False
    ),
]
PersistedState = Annotated[str, typer.Option("--memory", help="Memory of each worker: 2Gi.")]
Gpus = Annotated[str, typer.Option("--gpus", help="GPUs of each worker: 1, or a share such as 0.5.")]
Image = Annotated[str, typer.Option("--image", help="What holds the command, in a Kubernetes cluster.")]
Env = Annotated[
    list[str] | None, typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="A variable; without a value, yours.")
]
Priority = Annotated[
    int, typer.Option("--priority", min=LEAST_PRIORITY, max=MOST_PRIORITY, help="Higher goes first; may be negative.")
]
Category = Annotated[str, typer.Option("--category", help="Jobs assumed alike.  [default: from the name]")]
Pattern = Annotated[
    list[str] | None, typer.Option("--progress", metavar="REGEX", help="What lines of progress look like.")
]
Total = Annotated[int, typer.Option("--total", metavar="STEPS", min=0, help="Steps in all, if the job does not say.")]
Grace = Annotated[str, typer.Option("--grace", help="Time to save when it is stopped: 30s.")]
Restart = Annotated[str, typer.Option("--restart", metavar="Never|OnFailure|ExitCode", help="After a failure.")]
Resizing = Annotated[
    str, typer.Option("--resizing", metavar="restart|in-place|torchrun", help="How it takes other numbers of workers.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the name only.")]

_KEPT = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")
"""Variables without which the command would be another one."""
_SUFFIX = "abcdefghijkmnpqrstuvwxyz23456789"
_LONGEST_STEM = 40


def command(
    words: Command,
    name: Name = "",
    workers: Workers = "1",
    cpus: Cpus = "",
    memory: PersistedState = "",
    gpus: Gpus = "",
    image: Image = "",
    env: Env = None,
    priority: Priority = 0,
    category: Category = "",
    progress: Pattern = None,
    total: Total = 0,
    grace: Grace = "30s",
    restart: Restart = "OnFailure",
    resizing: Resizing = "restart",
    quiet: Quiet = False,
    state: State = None,
    server: ServerUrl = None,
) -> None:
    """Run a command as a job of the cluster, in this folder.

    It runs with the rights of the user who started the cluster. In a Kubernetes cluster it runs in an image instead.

    \b
    Examples:
      sterna submit -- python train.py --lr 0.1
      sterna submit --name mnist --workers 1:4 --cpus 2 -- python train.py
      sterna submit --context lab --image team/mnist:3 --gpus 1 -- python train.py
    """
    where = chosen(state, server)
    if image and where is None:
        raise UserError("--image is for Kubernetes clusters; add --context NAME, or leave it out.")
    stem, is_here = _stem(words), server is None and where is None
    needs = {"cpu": cpus, "memory": memory, "gpu": gpus}
    spec = {
        "command": _found(words, is_here),
        "workers": workers,
        "resources": {name: need for name, need in needs.items() if need},
        "env": _variables(env or [], is_here),
        "priority": priority,
        **({"image": image} if image else {}),
        **({"category": category or stem} if category or not name else {}),
        "progress": {**({"stdout": progress} if progress else {}), "total": total},
        "grace": grace,
        "restartPolicy": restart,
        "resizing": resizing,
    }
    job = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name or f"{stem}-{_random(5)}"},
        "spec": spec,
    }
    cwd = os.getcwd() if is_here else ""
    try:
        answer = client(state, server).create(json.dumps(job).encode(), True, cwd, new_key())
    except UserError as error:
        raise UserError(str(error).removeprefix("the request: ")) from None  # there is no file to look into
    show_created(answer, quiet, where)


def show_created(answer: dict[str, Any], is_quiet: bool, where: Where | None) -> None:
    """Names of new jobs to stdout, notices to stderr."""
    notices = [*answer["notices"], *(notice for job in answer["jobs"] for notice in job["notices"])]
    for notice in dict.fromkeys(notices):
        print(f"note: {notice}", file=sys.stderr)
    for job in answer["jobs"]:
        follow = f"logs -f {job['name']}"
        how = f"sterna {follow}" if where is None else where.as_typed(follow)
        print(job["name"] if is_quiet else f"{job['name']} is submitted; follow it with: {how}")


def _found(words: list[str], is_here: bool) -> list[str]:
    """The command with the full path of its program, as this shell would find it."""
    if not is_here:
        return words
    program = shutil.which(words[0])
    if program is None:
        raise UserError(f"There is no command '{words[0]}'; check its name, or give its path.")
    return [os.path.abspath(program), *words[1:]]


def _variables(given: list[str], is_here: bool) -> dict[str, str]:
    found = {name: os.environ[name] for name in _KEPT if is_here and name in os.environ}
    for each in given:
        name, is_set, value = each.partition("=")
        if not is_set and name not in os.environ:
            raise UserError(f"--env {name}: your environment has no such variable; write --env {name}=VALUE.")
        found[name] = value if is_set else os.environ[name]
    return found


def _stem(words: list[str]) -> str:
    """What the command is about: its script or module, else its program."""
    after_module = [word for flag, word in pairwise(words) if flag == "-m"]
    scripts = [Path(word).stem for word in words if word.endswith((".py", ".sh"))]
    text = (scripts or after_module or [Path(words[0]).name])[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:_LONGEST_STEM].strip("-") or "job"


def new_key() -> str:
    """A text that nobody else has, under which jobs are created once."""
    return _random(20)


def _random(length: int) -> str:
    return "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in os.urandom(length))
