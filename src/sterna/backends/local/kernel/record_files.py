"""Files between daemon and shim: JSON records that are replaced atomically and read as None when absent.

Light enough for the shim.
"""

from __future__ import annotations

import json
import os

from sterna.backends.local.kernel.atomic_files import make_temporary, read_bytes, sync_folder
from sterna.backends.local.kernel.crash_points import crash_point

JsonRecord = dict[str, object]
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


def write_record(folder: str, name: str, record: JsonRecord, durable: bool = True, crash: str = "") -> None:
    """Replace a record; `durable`: it survives a power failure. `crash`: name of the crash point before it becomes
    visible."""
    temporary = make_temporary(folder, name, (json.dumps(record) + "\n").encode(), durable=durable)
    crash_point(crash)
    os.rename(temporary, os.path.join(folder, name))
    if durable:
        sync_folder(folder)


def read_record(folder: str, name: str) -> JsonRecord | None:
    content = read_bytes(os.path.join(folder, name))
    if content is None:
        return None
    try:
        record = json.loads(content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def modified_at(folder: str, name: str) -> float | None:
    try:
        return os.stat(os.path.join(folder, name)).st_mtime
    except OSError:
        return None
