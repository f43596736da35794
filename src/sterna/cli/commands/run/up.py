"""`sterna up`: run a cluster on this machine, in this terminal or in the background."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import StateOption, state_folder
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.rule_options import RuleOptions
from sterna.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sterna.apps.daemon import Daemon


@dataclass(frozen=True)
class DaemonOptions:
    """The options of the daemon beside its rules."""

    nodes: Annotated[
        str, typer.Option("--nodes", metavar="SPEC", help="auto (one node per core), 2x1cpu, 2x4cpu1gpu, ...")
    ] = "auto"
    shared: Annotated[
        bool, typer.Option("--shared", help="Nodes are shared: jobs may request more CPUs than a node has.")
    ] = False
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Address of dashboard and REST.  [default: 127.0.0.1:8470]"),
    ] = ""
    policy: Annotated[
        str, typer.Option("--policy", help="Rule that chooses each job's number of workers; see `sterna policies`.")
    ] = ""
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background; end it with sterna down.")] = (
        False
    )
    certificate: Annotated[str, typer.Option("--tls-cert", metavar="FILE", help="TLS certificate.")] = ""
    key: Annotated[str, typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate.")] = ""
    as_submitter: Annotated[bool, typer.Option("--as-submitter", help="Run each job as its submitter; needs root.")] = (
        False
    )
    evict_unsaved: Annotated[
        bool,
        typer.Option("--evict-unsaved", help="A higher priority may stop jobs that have not shown that they can save."),
    ] = False
    log_level: Annotated[
        str,
        typer.Option("--log-level", metavar="LEVEL", help="Least severe messages to log: debug, info, warning, error."),
    ] = "info"
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="FORMAT", help="Format of the log on stderr: text, or json.")
    ] = "text"


_READY = "STERNA_READY_FD"
"""Environment variable with the pipe on which a cluster in the background reports that it is ready."""
_LOG = "daemon.log"


@expand_options
def command(options: DaemonOptions, rules: RuleOptions, state: StateOption = None) -> int:
    """Run a cluster on this machine until interrupted; training continues without it, and the next one adopts it.

    Jobs run with your rights. On this machine only you may use the cluster; any other address (--listen) needs the
    token in the state folder.

    \b
    Examples:
      sterna up
      sterna up --detach --nodes 2x1cpu --policy elastic-srjf
      sterna up --listen 0.0.0.0:8470 --tls-cert cert.pem --tls-key key.pem
    """
    if bool(options.certificate) != bool(options.key):
        raise UserError("--tls-cert and --tls-key belong together; give both.")
    if options.as_submitter and os.geteuid() != 0:
        raise UserError("--as-submitter changes users, which needs root; start it with sudo, or leave it out.")
    from sterna.logs import configure_logging

    configure_logging(options.log_level, options.log_format)
    folder = state_folder(state)
    if options.detach:
        return _start_in_background(folder)
    _run(folder, options, rules)
    return 0


def _run(folder: Path, options: DaemonOptions, rules: RuleOptions) -> None:
    from sterna.api import Encryption
    from sterna.apps.daemon import run

    run(
        folder,
        nodes=options.nodes,
        shared=options.shared,
        listen=options.listen,
        as_submitter=options.as_submitter,
        evict_unsaved=options.evict_unsaved,
        policy=options.policy,
        placement=rules.placement,
        migration=rules.migration,
        cpu_share=rules.cpu_share,
        reservation=rules.reservation,
        rate_limit_seconds=rules.rate_limit,
        encryption=Encryption(options.certificate, options.key) if options.certificate else None,
        ready=_ready(),
    )


def _ready() -> Callable[[Daemon], None]:
    """Return the callback for a cluster that is ready: print its address, or send it to the waiting parent."""
    handle = os.environ.pop(_READY, "")

    def report(daemon: Daemon) -> None:
        text = "".join(f"{line}\n" for line in _greeting(daemon.url, daemon.state, daemon.options.as_submitter))
        if handle:
            with suppress(OSError), os.fdopen(int(handle), "w") as pipe:
                pipe.write(text)
        else:
            print(text, end="", flush=True)

    return report


def _greeting(url: str, folder: Path, as_submitter: bool) -> list[str]:
    from sterna.api.peers import is_loopback, user_name

    rights = (
        "each job runs as its submitter" if as_submitter else f"jobs run with the rights of {user_name(os.getuid())}"
    )
    lines = [f"Sterna runs: {url}", f"State is kept in {folder}; {rights}."]
    if as_submitter:
        lines.append(f"Other users of this machine add --server {url} to their commands.")
    host = url.partition("://")[2].rpartition(":")[0].strip("[]")
    if not is_loopback(host):
        lines.append(f"Others need the token in {folder / 'token'}; in a browser: {url}/?token=TOKEN")
        if url.startswith("http:"):
            lines.append("Nothing is encrypted on this address; add --tls-cert and --tls-key where others listen.")
    lines.append("Next: sterna submit -- python train.py")
    return lines


def _start_in_background(folder: Path) -> int:
    """Start the same command in the background, and wait until it is ready or has failed."""
    import subprocess

    import click

    typed = click.get_current_context().find_root().obj or ()
    arguments = [each for each in typed if each not in ("--detach", "-d")]
    log = _open_log(folder)
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "sterna.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        pass_fds=[writing],
        env=os.environ | {_READY: str(writing)},
    )
    os.close(writing)
    start = os.fstat(log).st_size
    with os.fdopen(reading) as pipe:
        greeting = pipe.read()
    if greeting:
        print(greeting, end="")
        return 0
    code = child.wait()
    print(_read_from(folder / _LOG, start) or f"sterna: It ended at once; see {folder / _LOG}.", file=sys.stderr)
    return code or 1


def _open_log(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise UserError(
            f"--state {folder}: nothing can be kept there ({error.strerror}); choose another folder."
        ) from None


def _read_from(log: Path, start: int) -> str:
    """Return the part of a log from an offset on."""
    with suppress(OSError):
        return log.read_bytes()[start:].decode(errors="replace").strip()
    return ""
