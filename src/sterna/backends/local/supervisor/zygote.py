"""The process from which shims are forked: a warm interpreter, so that a replica starts in milliseconds and shims share
memory.

One per state folder, started on first use; it outlives the daemon. A request is a line of JSON on the unix socket
`zygote.sock`: `{"version", "folder"}` is answered `{"pid"}` or `{"error"}`; `{"retire": true}` makes it exit after its
last shim. It also exits when it has neither a shim nor a daemon. As sub-reaper it inherits the processes of a killed
shim, and kills them. It keeps no state that matters.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys

import sterna
from sterna.backends.local.kernel.atomic_files import remove_file
from sterna.backends.local.kernel.crash_points import arm, crash_point
from sterna.backends.local.kernel.prctl import SPARED, become_subreaper, oom_score, set_oom_score
from sterna.backends.local.kernel.proc_table import children, is_alive
from sterna.backends.local.kernel.record_files import JsonRecord, read_record
from sterna.backends.local.supervisor import shim
from sterna.backends.local.supervisor.kill_tree import kill, kill_leaves, reap
from sterna.backends.local.supervisor.launch_spec import groups_of

SOCKET, LOCK, LOG = "zygote.sock", "zygote.lock", "zygote.log"
ANOTHER_IS_THERE = 3
OTHER_VERSION = "other version"

_BACKLOG = 128
_PATIENCE_SECONDS = 2.0
"""Timeout for a client that connects and sends nothing."""
_LONGEST_REQUEST_BYTES = 1 << 16
_LONELY_SECONDS = 60.0
"""Interval at which a zygote without shims checks whether there is a daemon."""
_DAEMON = "daemon.json"


def main(state: str, lonely_seconds: float = _LONELY_SECONDS) -> int:
    """Listen, then daemonize: when the caller's child has exited, requests are accepted."""
    os.umask(0o077)
    lock = os.open(os.path.join(state, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ANOTHER_IS_THERE
    listener = _listen(state)
    if os.fork() > 0:
        return 0
    os.setsid()
    os.chdir("/")
    _redirect_streams(state)
    Zygote(state, listener, lock, lonely_seconds).serve()
    return 0


def _listen(state: str) -> socket.socket:
    """Bind by the folder's descriptor: a socket path is limited to 107 bytes, a state folder's path is not."""
    remove_file(os.path.join(state, SOCKET))
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
    finally:
        os.close(folder)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _redirect_streams(state: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(os.path.join(state, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


class Zygote:
    def __init__(self, state: str, listener: socket.socket, lock: int, lonely_seconds: float) -> None:
        self._state = os.path.join(state, "")
        self._lonely_seconds = lonely_seconds
        self._listener: socket.socket | None = listener
        self._lock = lock
        self._shims: dict[int, str] = {}
        """Folders by pid."""
        self._oom_score = oom_score()
        self._wake_reading, self._wake_writing = os.pipe()

    def serve(self) -> None:
        become_subreaper()
        set_oom_score(SPARED)
        self._listen_to_children()
        # Objects that the collector never touches keep their pages shared with the shims.
        gc.collect()
        gc.freeze()
        gc.disable()
        while self._listener is not None or self._shims:
            has_news = self._wait()
            self._reap()
            if self._listener is not None:
                self._accept(self._listener)
            if not has_news and not self._shims and not self._has_daemon():
                self._retire()

    def _listen_to_children(self) -> None:
        os.set_blocking(self._wake_reading, False)
        os.set_blocking(self._wake_writing, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_writing, warn_on_full_buffer=False)

    def _has_daemon(self) -> bool:
        """True if the daemon in `daemon.json` lives. A daemon that is starting is not there yet, but sends a request
        soon."""
        about = read_record(self._state, _DAEMON) or {}
        pid, ticks, boot = about.get("pid"), about.get("start_ticks"), about.get("boot_id")
        return isinstance(pid, int) and isinstance(ticks, int) and is_alive(pid, ticks, str(boot))

    def _wait(self) -> bool:
        """Wait for a request or an exit; return False after a long time without either and without shims."""
        poll = select.poll()  # not select(), which fails above descriptor 1023
        poll.register(self._wake_reading, select.POLLIN)
        if self._listener is not None:
            poll.register(self._listener, select.POLLIN)
        found = poll.poll(None if self._shims else self._lonely_seconds * 1000)
        self._drain()
        return bool(found)

    def _drain(self) -> None:
        try:
            while os.read(self._wake_reading, 4096):
                pass
        except BlockingIOError:
            return

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is not None:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            with connection:
                connection.settimeout(_PATIENCE_SECONDS)
                try:
                    answer = self._answer(connection)
                    connection.sendall(json.dumps(answer).encode() + b"\n")
                except (OSError, ValueError):
                    continue  # the client disconnected, or is another user

    def _answer(self, connection: socket.socket) -> JsonRecord:
        if _peer(connection) not in (os.geteuid(), 0):
            return {"error": "only the user who started this cluster may ask it to start processes."}
        request = json.loads(_line(connection))
        if request.get("retire"):
            self._retire()
            return {"shims": len(self._shims)}
        arm(str(request.get("crash", "")))
        crash_point("zygote.received")
        if request.get("version") != sterna.__version__:
            self._retire()
            return {"error": OTHER_VERSION}
        folder = os.path.normpath(str(request["folder"]))
        if not folder.startswith(self._state):
            return {"error": f"{folder} is not in the state folder {self._state}."}
        return {"pid": self._fork(folder, connection)}

    def _fork(self, folder: str, connection: socket.socket) -> int:
        # Blocked before the fork: a signal that arrives before the shim listens stays pending.
        signal.pthread_sigmask(signal.SIG_BLOCK, shim.SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._leave_to_shim(connection)
                shim.run(folder, self._oom_score)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, shim.SIGNALS)
        self._shims[pid] = folder
        crash_point("zygote.forked")
        return pid

    def _leave_to_shim(self, connection: socket.socket) -> None:
        """Close everything of the zygote in the child, above all its lock, or a dead zygote would seem alive."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._lock, self._wake_reading, self._wake_writing):
            os.close(descriptor)
        connection.close()
        if self._listener is not None:
            self._listener.close()

    def _reap(self) -> None:
        reap(self._note_shim_exit)
        # A shim exits only when nothing is left below it: a child that is no shim is a dead shim's orphan.
        # The orphan's children become ours when it dies, which wakes us again, until none is left.
        for pid in children(os.getpid()):
            if pid not in self._shims:
                kill(pid)

    def _note_shim_exit(self, pid: int, status: int) -> None:
        folder = self._shims.pop(pid, None)
        if folder is not None and status != 0:
            kill_leaves(folder, groups_of(folder))

    def _retire(self) -> None:
        """Make room for a successor; stay for the shims, whose orphans come to us."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            remove_file(self._state + SOCKET)
            os.close(self._lock)


def _peer(connection: socket.socket) -> int:
    layout = "3i"  # pid, uid, gid
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(layout))
    return int(struct.unpack(layout, answer)[1])


def _line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_REQUEST_BYTES:
        part = connection.recv(4096)
        if not part:
            break
        line += part
    return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
