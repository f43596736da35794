"""Read and write control group files without losing errors.

The kernel answers a write to such a file in the system call. A buffered file object would write when it is closed,
where errors are easily swallowed, so everything here is one unbuffered call.
"""

from __future__ import annotations

import os

PROCS = "cgroup.procs"


def write(group: str, name: str, value: str) -> None:
    """Write a file; raise OSError with its name if the kernel refuses."""
    path = os.path.join(group, name)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def read(group: str, name: str) -> str:
    """Return the content; empty if the group or the file does not exist."""
    try:
        descriptor = os.open(os.path.join(group, name), os.O_RDONLY)
    except OSError:
        return ""
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return ""  # the group was removed meanwhile
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()


def has(group: str, name: str) -> bool:
    return os.path.exists(os.path.join(group, name))


def is_writable(group: str, name: str) -> bool:
    """True if we may create groups in it and write that file."""
    return os.access(group, os.W_OK) and os.access(os.path.join(group, name), os.W_OK)


def make(group: str) -> None:
    """Create the group. Its parent must exist, because a parent is configured before it has children."""
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


def all_members(group: str) -> list[int]:
    """Return the members of the group and of all groups below it."""
    found = members(group)
    for below in subgroups(group):
        found += all_members(below)
    return found


def remove(group: str) -> bool:
    """Remove the group and all below it; return False if processes are inside."""
    for below in subgroups(group):
        remove(below)
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
