"""`sterna up`: a cluster on this machine, in this terminal or in the background."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.connect.cluster import StateOption, state_folder
from sterna.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sterna.apps.daemon import Daemon

Nodes = Annotated[str, typer.Option("--nodes", metavar="SPEC", help="auto (a node per core), 2x1cpu, 2x4cpu1gpu, ...")]
Shared = Annotated[bool, typer.Option("--shared", help="Jobs may ask for more CPU than a node has, and share it.")]
Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Page and REST.  [default: 127.0.0.1:8470]")]
Policy = Annotated[str, typer.Option("--policy", help="How many workers for each job; see `sterna policies`.")]
Placement = Annotated[str, typer.Option("--placement", help="Which node for each worker.")]
Migration = Annotated[str, typer.Option("--migration", help="Which running worker moves.")]
CpuShare = Annotated[str, typer.Option("--cpu-share", help="How a shared node's CPUs are divided.")]
Reservation = Annotated[str, typer.Option("--reservation", help="Who goes first.")]
RateLimit = Annotated[
    float | None, typer.Option("--rate-limit", metavar="SECONDS", min=0, help="Least time between two rounds.")
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Run in the background; end it with sterna down.")]
Certificate = Annotated[str, typer.Option("--tls-cert", metavar="FILE", help="Encrypt, with this certificate.")]
Key = Annotated[str, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")]
AsSubmitter = Annotated[bool, typer.Option("--as-submitter", help="Run each job as its submitter; needs root.")]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help="Least severe messages to log: debug, info, warning, error.")
]
LogFormat = Annotated[
    str, typer.Option("--log-format", metavar="FORMAT", help="Format of the log on stderr: text, or json.")
]

_READY = "STERNA_READY_FD"
"""Where a cluster in the background tells whoever started it that it is there."""
_LOG = "daemon.log"


def command(
    state: StateOption = None,
    nodes: Nodes = "auto",
    shared: Shared = False,
    listen: Listen = "",
    policy: Policy = "",
    placement: Placement = "",
    migration: Migration = "",
    cpu_share: CpuShare = "",
    reservation: Reservation = "",
    rate_limit: RateLimit = None,
    detach: Detach = False,
    certificate: Certificate = "",
    key: Key = "",
    as_submitter: AsSubmitter = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> int:
    """Run a cluster on this machine until it is interrupted; training goes on without it, and is found again.

    Jobs run with your rights. Only you may use it on this machine; any other address (--listen) asks for the token
    that is kept in the state folder.

    \b
    Examples:
      sterna up
      sterna up --detach --nodes 2x1cpu --policy elastic-srjf
      sterna up --listen 0.0.0.0:8470 --tls-cert cert.pem --tls-key key.pem
    """
    if bool(certificate) != bool(key):
        raise UserError("--tls-cert and --tls-key belong together; give both.")
    if as_submitter and os.geteuid() != 0:
        raise UserError("--as-submitter changes users, which needs root; start it with sudo, or leave it out.")
    from sterna.logs import configure_logging

    configure_logging(log_level, log_format)
    folder = state_folder(state)
    if detach:
        return _detached(folder)
    rules = {
        "policy": policy,
        "placement": placement,
        "migration": migration,
        "cpu_share": cpu_share,
        "reservation": reservation,
    }
    options = {"nodes": nodes, "shared": shared, "listen": listen, "rate_limit_seconds": rate_limit, **rules}
    _run(folder, options | {"as_submitter": as_submitter}, (certificate, key))
    return 0


def _run(folder: Path, options: dict[str, Any], encryption: tuple[str, str]) -> None:
    from sterna.api import Encryption
    from sterna.apps.daemon import run

    run(folder, **options, encryption=Encryption(*encryption) if encryption[0] else None, ready=_ready())


def _ready() -> Callable[[Daemon], None]:
    """What to do when clients find the cluster: say so, here or to whoever waits for it."""
    handle = os.environ.pop(_READY, "")

    def tell(daemon: Daemon) -> None:
        text = "".join(f"{line}\n" for line in _greeting(daemon.url, daemon.state, daemon.options.as_submitter))
        if handle:
            with suppress(OSError), os.fdopen(int(handle), "w") as pipe:
                pipe.write(text)
        else:
            print(text, end="", flush=True)

    return tell


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


def _detached(folder: Path) -> int:
    """Start the same command in the background, and wait until it is there or has failed."""
    import subprocess

    import click

    typed = click.get_current_context().find_root().obj or ()
    arguments = [each for each in typed if each not in ("--detach", "-d")]
    log = _log(folder)
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
        said = pipe.read()
    if said:
        print(said, end="")
        return 0
    code = child.wait()
    print(_since(folder / _LOG, start) or f"sterna: It ended at once; see {folder / _LOG}.", file=sys.stderr)
    return code or 1


def _log(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise UserError(
            f"--state {folder}: nothing can be kept there ({error.strerror}); choose another folder."
        ) from None


def _since(log: Path, start: int) -> str:
    """What was written to a log from a byte on."""
    with suppress(OSError):
        return log.read_bytes()[start:].decode(errors="replace").strip()
    return ""
