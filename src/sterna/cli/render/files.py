"""Files that commands write: checked before the work begins, and replaced only when complete."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from sterna.errors import UserError

WriteContents = Callable[[str | bytes], None]


@contextmanager
def output_file(path: str | None, option: str) -> Iterator[WriteContents]:
    """Yield a function that writes the contents, once; without a path it drops them."""
    if path is None:
        yield lambda _: None
        return
    if _is_device(path):
        yield _device_writer(path, option)
        return
    target = Path(os.path.realpath(path))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    except OSError as error:
        raise _write_error(path, option, error) from None
    if target.exists() and not os.access(target, os.W_OK):
        os.close(handle)
        os.unlink(name)
        raise UserError(f"{option} {path}: this file may not be written; change its permissions or choose another.")
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            os.fchmod(file.fileno(), _mode(target))
            yield lambda contents: _write_all(file, contents, path, option)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def reject_clashes(read: Mapping[str, str | None], written: Mapping[str, str | None]) -> None:
    """Reject options that write a file which another option reads or writes; both map options to paths."""
    taken = {os.path.realpath(path): option for option, path in read.items() if path is not None}
    for option, path in written.items():
        if path is None or _is_device(path):
            continue
        other = taken.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UserError(f"{option} {path}: this is the file of {other}, which would be lost; choose another file.")


def _write_all(file: FileIO, contents: str | bytes, path: str, option: str) -> None:
    """Write without a buffer, so that closing the file cannot fail."""
    left = memoryview(contents.encode() if isinstance(contents, str) else contents)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _write_error(path, option, error) from None


def _is_device(path: str) -> bool:
    """True for a pipe, terminal, folder and the like, which is never replaced."""
    is_special = os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return is_special or (os.path.exists(path) and not os.path.isfile(path))


def _device_writer(path: str, option: str) -> WriteContents:
    if os.path.isdir(path):
        raise UserError(f"{option} {path}: this is a folder; add the name of a file.")
    if not os.path.exists(path):
        raise UserError(f"{option} {path}: no new files can be made there; choose another place.")

    def write(contents: str | bytes) -> None:
        try:
            with open(path, "ab", buffering=0) as file:
                _write_all(file, contents, path, option)
        except OSError as error:
            raise _write_error(path, option, error) from None

    return write


def _mode(target: Path) -> int:
    """Return the mode of the file, or that of a new one."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _write_error(path: str, option: str, error: OSError) -> UserError:
    folder = os.path.dirname(path) or "."
    if isinstance(error, FileNotFoundError):
        return UserError(f"{option} {path}: there is no folder '{folder}'; create it or choose another place.")
    if isinstance(error, NotADirectoryError):
        return UserError(f"{option} {path}: '{folder}' is not a folder; choose another place.")
    if isinstance(error, PermissionError):
        return UserError(f"{option} {path}: you may not write to the folder '{folder}'; choose another place.")
    return UserError(f"{option} {path}: this cannot be written ({error.strerror}); choose another place.")
