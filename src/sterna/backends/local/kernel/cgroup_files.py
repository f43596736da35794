"""Reading and writing control group files, so that no refusal is lost.

The kernel answers a write to such a file in the write itself. A buffered file object would write when it is closed,
where errors are easily swallowed: everything here is one unbuffered call whose error reaches the caller.
"""

from __future__ import annotations

import os

PROCS = "cgroup.procs"


def write(group: str, name: str, value: str) -> None:
    """Raises OSError with the file's name if the kernel refuses."""
    path = os.path.join(group, name)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def read(group: str, name: str) -> str:
    """Empty if the group or the file is not there."""
    try:
        descriptor = os.open(os.path.join(group, name), os.O_RDONLY)
    except OSError:
        return ""
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return ""  # the group was removed while it was read
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()


def has(group: str, name: str) -> bool:
    return os.path.exists(os.path.join(group, name))


def is_writable(group: str, name: str) -> bool:
    """Whether we may make groups in it and write that file of it."""
    return os.access(group, os.W_OK) and os.access(os.path.join(group, name), os.W_OK)


def make(group: str) -> None:
    """The group itself; its parent must be there, because a parent has to be set up before it has children."""
    try:
        os.mkdir(group, 0o755)
    except FileExistsError:
        return


def members(group: str) -> list[int]:
    return [int(pid) for pid in read(group, PROCS).split()]


def subgroups(group: str) -> list[str]:
    try:
        with os.scandir(group) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def everyone(group: str) -> list[int]:
    """Members of the group and of all below it."""
    found = members(group)
    for below in subgroups(group):
        found += everyone(below)
    return found


def remove(group: str) -> bool:
    """The group and all below it; false if somebody is still inside."""
    for below in subgroups(group):
        remove(below)
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
