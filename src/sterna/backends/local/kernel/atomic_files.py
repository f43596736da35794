"""Atomic replacement of files."""

from __future__ import annotations

import os
from pathlib import Path

from sterna.errors import UserError


def replace_whole(path: Path, content: bytes, mode: int = 0o644, *, durable: bool = True) -> None:
    """Replace the content of a file; readers see the old or the new one, also after a power failure."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make names in this folder survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private_folder(path: Path) -> Path:
    """Create a folder that only its owner can enter, if it is missing."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise UserError(
            f"The state folder '{path}' cannot be used: {error.strerror}; choose another one with --state."
        ) from None
    return path
