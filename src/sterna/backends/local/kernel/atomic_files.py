"""Atomic replacement of files. Light, because the shim imports it."""

from __future__ import annotations

import os


def replace_file(
    folder: str | os.PathLike[str], name: str, content: bytes, mode: int = 0o644, *, durable: bool = True
) -> None:
    """Replace a file; readers see the old or the new content, with `durable` also after a power failure."""
    os.rename(make_temporary(folder, name, content, mode, durable=durable), os.path.join(folder, name))
    if durable:
        sync_folder(folder)


def make_temporary(
    folder: str | os.PathLike[str], name: str, content: bytes, mode: int = 0o600, *, durable: bool = False
) -> str:
    """Write a temporary file and return its path. It is created exclusively and never follows a link, because a replica
    that runs as another user may write in its own folder."""
    path = os.path.join(folder, f"{name}.{os.getpid()}")
    remove_file(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        while content:
            content = content[os.write(descriptor, content) :]
        if durable:
            os.fsync(descriptor)
    except OSError:
        remove_file(path)
        raise
    finally:
        os.close(descriptor)
    return path


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make names in this folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
