"""Files between daemon and shim: JSON records that are replaced atomically and read as None when absent.

Light enough for the shim. Temporary files are created exclusively and never follow a link, because a replica that runs
as another user may write in its own folder.
"""

from __future__ import annotations

import json
import os

from sterna.backends.local.kernel.crash_points import crash_point

Record = dict[str, object]
"""A JSON object on disk; readers convert it to typed values."""

LAUNCH_FILE, LOCK_FILE, SHIM, STOP, SAVED, EXIT = (
    "launch.json",
    "lock",
    "shim.json",
    "stop.json",
    "saved.json",
    "exit.json",
)
LOG, OLD_LOG = "out.log", "out.log.1"


def write_record(folder: str, name: str, record: Record, durable: bool = True, crash: str = "") -> None:
    """Replace a record; `durable`: it survives a power failure. `crash`: name of the crash point before it becomes
    visible."""
    temporary = make_temporary(folder, name, (json.dumps(record) + "\n").encode(), durable)
    crash_point(crash)
    os.rename(temporary, os.path.join(folder, name))
    if durable:
        sync_folder(folder)


def make_temporary(folder: str, name: str, content: bytes, durable: bool = False) -> str:
    path = os.path.join(folder, f"{name}.{os.getpid()}")
    remove(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        if durable:
            os.fsync(descriptor)
    except OSError:
        remove(path)
        raise
    finally:
        os.close(descriptor)
    return path


def read_record(folder: str, name: str) -> Record | None:
    content = read_bytes(os.path.join(folder, name))
    if content is None:
        return None
    try:
        record = json.loads(content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def read_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def modified_at(folder: str, name: str) -> float | None:
    try:
        return os.stat(os.path.join(folder, name)).st_mtime
    except OSError:
        return None


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
