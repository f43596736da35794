"""`sterna submit`: run a command as a job, without a manifest."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import Quiet
from sterna.errors import UserError
from sterna.model.job import LEAST_PRIORITY, MOST_PRIORITY

if TYPE_CHECKING:
    from sterna.cli.connect.target import KubernetesTarget
    from sterna.service.requests import Submitted

SETTINGS = {"allow_interspersed_args": False}
"""Options end where the command begins, with or without `--`."""

Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command that every worker runs.")]


@dataclass(frozen=True)
class JobOptions:
    """The job's specification, as far as options describe it."""

    name: Annotated[str, typer.Option("--name", help="Name of the job.  [default: from the command]")] = ""
    workers: Annotated[str, typer.Option("--workers", metavar="N|MIN:MAX", help="Number of workers.")] = "1"
    cpus: Annotated[
        str,
        typer.Option(
            "--cpus", help="Cores of each worker: 2, 0.5.  [default: 1; on shared nodes none]", show_default=False
        ),
    ] = ""
    memory: Annotated[str, typer.Option("--memory", help="Memory of each worker: 2Gi.")] = ""
    gpus: Annotated[str, typer.Option("--gpus", help="GPUs of each worker: 1, or a fraction such as 0.5.")] = ""
    image: Annotated[str, typer.Option("--image", help="Container image (Kubernetes only).")] = ""
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="Environment variable; without a value, yours."),
    ] = None
    priority: Annotated[
        int,
        typer.Option("--priority", min=LEAST_PRIORITY, max=MOST_PRIORITY, help="Higher goes first; may be negative."),
    ] = 0
    category: Annotated[
        str, typer.Option("--category", help="Jobs of one category learn from one another.  [default: from the name]")
    ] = ""
    progress: Annotated[
        list[str] | None, typer.Option("--progress", metavar="REGEX", help="Pattern of progress lines in the output.")
    ] = None
    total: Annotated[
        int,
        typer.Option("--total", metavar="STEPS", min=0, help="Total number of steps, if the job does not report it."),
    ] = 0
    grace: Annotated[str, typer.Option("--grace", help="Time to save before a stop: 30s.")] = "30s"
    restart: Annotated[
        str, typer.Option("--restart", metavar="Never|OnFailure|ExitCode", help="Restart policy after a failure.")
    ] = "OnFailure"
    resizing: Annotated[
        str,
        typer.Option(
            "--resizing",
            metavar="restart|in-place|torchrun|none",
            help="How the job is resized.  [default: torchrun if that is the command, else none]",
            show_default=False,
        ),
    ] = ""
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint", metavar="PATH", help="File or folder of its checkpoints, if it does not use the agent."
        ),
    ] = ""


_FORWARDED = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")
"""Variables that decide which program and libraries the command finds."""
_SUFFIX = "abcdefghijkmnpqrstuvwxyz23456789"
_LONGEST_STEM = 40


@expand_options
def command(words: Command, options: JobOptions, cluster: ClusterOptions, quiet: Quiet = False) -> None:
    """Run a command as a job of the cluster, in this folder.

    It runs with the rights of the user who started the cluster; in a Kubernetes cluster, in a container image.

    \b
    Examples:
      sterna submit -- python train.py --lr 0.1
      sterna submit --name mnist --workers 1:4 --resizing restart --cpus 2 -- python train.py
      sterna submit --context lab --image team/mnist:3 --gpus 1 -- python train.py
    """
    from sterna.service.requests import Submission

    target = cluster.kubernetes
    if options.image and target is None:
        raise UserError("--image is for Kubernetes clusters; add --context NAME, or leave it out.")
    is_local = cluster.server is None and target is None
    body = json.dumps(_manifest(words, options, is_local)).encode()
    try:
        submitted = cluster.connect().submit(Submission(body, True, os.getcwd() if is_local else "", new_key()))
    except UserError as error:
        raise UserError(str(error).removeprefix("the request: ")) from None  # there is no file to look into
    show_submitted(submitted, quiet, target)


def _manifest(words: list[str], options: JobOptions, is_local: bool) -> dict[str, Any]:
    stem = _stem(words)
    needs = {"cpu": options.cpus, "memory": options.memory, "gpu": options.gpus}
    category = options.category or ("" if options.name else stem)
    spec = {
        "command": _resolve_program(words) if is_local else words,
        "workers": options.workers,
        "resources": {name: need for name, need in needs.items() if need},
        "env": _variables(options.env or [], is_local),
        "priority": options.priority,
        **({"image": options.image} if options.image else {}),
        **({"category": category} if category else {}),
        "progress": {**({"stdout": options.progress} if options.progress else {}), "total": options.total},
        "grace": options.grace,
        "restartPolicy": options.restart,
        **({"resizing": options.resizing} if options.resizing else {}),
        **({"checkpoint": options.checkpoint} if options.checkpoint else {}),
    }
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": options.name or f"{stem}-{_random(5)}"},
        "spec": spec,
    }


def show_submitted(submitted: Submitted, is_quiet: bool, target: KubernetesTarget | None) -> None:
    """Print names of new jobs to stdout, notices to stderr."""
    notices = [*submitted.notices, *(notice for job in submitted.jobs for notice in job.notices)]
    for notice in dict.fromkeys(notices):
        print(f"note: {notice}", file=sys.stderr)
    for job in submitted.jobs:
        follow = f"logs -f {job.name}"
        how = f"sterna {follow}" if target is None else target.command_line(follow)
        print(job.name if is_quiet else f"{job.name} is submitted; follow it with: {how}")


def _resolve_program(words: list[str]) -> list[str]:
    """Return the command with the absolute path of its program, as this shell would find it."""
    program = shutil.which(words[0])
    if program is None:
        raise UserError(f"There is no command '{words[0]}'; check its name, or give its path.")
    return [os.path.abspath(program), *words[1:]]


def _variables(given: list[str], is_local: bool) -> dict[str, str]:
    found = {name: os.environ[name] for name in _FORWARDED if is_local and name in os.environ}
    for each in given:
        name, is_set, value = each.partition("=")
        if not is_set and name not in os.environ:
            raise UserError(f"--env {name}: your environment has no such variable; write --env {name}=VALUE.")
        found[name] = value if is_set else os.environ[name]
    return found


def _stem(words: list[str]) -> str:
    """Return a name from the command: its script or module, else its program."""
    after_module = [word for flag, word in pairwise(words) if flag == "-m"]
    scripts = [Path(word).stem for word in words if word.endswith((".py", ".sh"))]
    text = (scripts or after_module or [Path(words[0]).name])[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:_LONGEST_STEM].strip("-") or "job"


def new_key() -> str:
    """Return a new idempotency key."""
    return _random(20)


def _random(length: int) -> str:
    return "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in os.urandom(length))
