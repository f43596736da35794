"""Choose the build of the compiled modules that a test process imports.

Python prefers an extension module to the source beside it, so tests run on the compiled modules where there are any.
`use_kernels("pure")` makes the process import the Python sources instead, and `use_kernels(folder)` the extension
modules below that folder (`make test-pure`, `make test-bounds`). Call it before anything imports `sterna`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).resolve().parents[1] / "src"

MODULES = {
    ".".join(types.relative_to(SOURCES).with_suffix("").parts): types.with_suffix(".py")
    for types in sorted(SOURCES.rglob("*.pxd"))
}
"""Source of each module that is compiled: those with a file of C types beside them."""


def use_kernels(build: str) -> None:
    """Import the compiled modules from `build`: "pure" for the Python sources, or a folder of extension modules."""
    imported = MODULES.keys() & sys.modules.keys()
    assert not imported, f"{sorted(imported)} are imported already"
    is_pure = build == "pure"
    files = {name: source if is_pure else _extension(name, Path(build).resolve()) for name, source in MODULES.items()}
    sys.meta_path.insert(0, _Finder(files))


def stale_extensions() -> list[str]:
    """Return the extension modules beside the sources that are older than their source or C types."""
    stale = []
    for source in MODULES.values():
        changed = max(source.stat().st_mtime, source.with_suffix(".pxd").stat().st_mtime)
        built = [source.with_suffix(suffix) for suffix in EXTENSION_SUFFIXES]
        stale += [str(file) for file in built if file.is_file() and file.stat().st_mtime < changed]
    return stale


class _Finder(MetaPathFinder):
    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def _extension(name: str, folder: Path) -> Path:
    base = folder.joinpath(*name.split("."))
    return next(file for suffix in EXTENSION_SUFFIXES if (file := Path(f"{base}{suffix}")).is_file())
