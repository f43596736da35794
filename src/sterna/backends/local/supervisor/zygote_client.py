"""The daemon's side of the zygote's socket: send requests, and start a zygote where none answers.

One connection per request, so any thread may call. A zygote of another version retires by itself and is replaced.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import sterna
from sterna.backends.local.kernel.crash_points import VARIABLE, crash_point
from sterna.backends.local.supervisor.zygote import ANOTHER_IS_THERE, OTHER_VERSION, SOCKET
from sterna.errors import Retry, UserError

_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.01
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from sterna.backends.local.supervisor.zygote import main; sys.exit(main(sys.argv[1]))"
)


class ZygoteClient:
    def __init__(self, state: Path) -> None:
        self._state = state

    def start_shim(self, folder: Path) -> int:
        """Return the pid of a new shim for the folder; the lock file decides whether it starts the replica."""
        request = {"version": sterna.__version__, "folder": str(folder)}
        crash = {"crash": os.environ.get(VARIABLE, "")}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            connection = self._connect()
            answer = None if connection is None else _ask(connection, request | crash)
            if connection is not None:
                crash = {}  # once: the next zygote must not crash
            if answer is None or answer.get("error") == OTHER_VERSION:
                self._start_zygote()
            elif isinstance(pid := answer.get("pid"), int):
                return pid
            else:
                raise Retry(f"no process was started for {folder}: {answer.get('error', 'no answer')}")
            if time.monotonic() > deadline:
                raise Retry(f"the zygote of {self._state} does not answer; see zygote.log in that folder")

    def warm(self) -> None:
        """Start a zygote if none listens."""
        connection = self._connect()
        if connection is None:
            self._start_zygote()
        else:
            connection.close()

    def retire(self) -> None:
        """Have the zygote exit after its last shim; does nothing if there is none."""
        connection = self._connect()
        if connection is not None:
            _ask(connection, {"retire": True})

    def _connect(self) -> socket.socket | None:
        """Connect by the folder's descriptor: a socket path is limited to 107 bytes, a state folder's path is not."""
        try:
            folder = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_PATIENCE_SECONDS)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except OSError as error:
            connection.close()
            raise Retry(f"the zygote of {self._state} does not answer: {error}") from None
        finally:
            os.close(folder)
        return connection

    def _start_zygote(self) -> None:
        """Start without site packages and without our environment: small, and the same for every replica."""
        check_state_folder(self._state)
        package = Path(sterna.__file__).resolve().parents[1]
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(self._state), str(package)]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        started = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True
        )
        if started.returncode == ANOTHER_IS_THERE:
            time.sleep(_PAUSE_SECONDS)  # another process is starting one: it listens in a moment
        elif started.returncode != 0:
            last = (started.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Retry(f"the zygote of {self._state} did not start: {last}")


def _ask(connection: socket.socket, request: Mapping[str, object]) -> dict[str, object] | None:
    """Send a request; return None if the zygote died: a repeated request is safe, the lock file decides."""
    with connection:
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            crash_point("launcher.asked")
            answer = connection.makefile("rb").readline()
        except OSError:
            return None
    try:
        found = json.loads(answer)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def check_state_folder(state: Path) -> None:
    """Check that the file system has hard links, without which a job could run twice."""
    first, second = state / f"link-check.{os.getpid()}", state / f"link-check.{os.getpid()}.2"
    try:
        first.write_bytes(b"")
        second.unlink(missing_ok=True)
        os.link(first, second)
    except OSError as error:
        raise UserError(
            f"The state folder {state} cannot be used ({error.strerror}); choose one with --state that is writable and "
            "on a file system with hard links."
        ) from None
    finally:
        first.unlink(missing_ok=True)
        second.unlink(missing_ok=True)
