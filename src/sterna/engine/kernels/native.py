"""Which loops rules use: machine code where Sterna was installed with it, else none, and rules work with columns.

What is compiled, as it stands, when Sterna is installed on a machine with a C compiler is `engine/kernels/loops.py`,
and of the simulator its books; the result is in a package of its own beside Sterna's (`hatch_build.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pkgutil import get_data
from types import ModuleType
from typing import Any, NamedTuple
from zlib import crc32

from sterna.engine.kernels import loops
from sterna.model.cluster import Assignment, Ints
from sterna.model.plan import Action
from sterna.model.snapshot import JobKey, Snapshot
from sterna.model.speedup import Floats


class Loops(NamedTuple):
    """The loops that rules call."""

    fit_in_order: Callable[[Ints, Ints, Ints, int, int, int, Ints], bool]
    fit_by_key: Callable[[Floats, Ints, Ints, Ints, int, int, Ints], None]
    take_turns: Callable[..., tuple[float, bool]]
    differing: Callable[[Ints, Ints], list[int]]
    runs_for: Callable[[Ints, int, int], list[tuple[int, int]]]
    runs_for_many: Callable[[Ints, int, int, int], list[tuple[tuple[int, int], ...]]]
    start_and_stop: Callable[[list[int], Ints, Ints, Mapping[JobKey, Assignment], Ints, int], list[Action] | None]
    are_fine: Callable[[Sequence[Action], Ints, Ints, Ints, Mapping[JobKey, Assignment], Ints, int], bool]

    @classmethod
    def of(cls, module: Any) -> Loops:
        return cls(*(getattr(module, name) for name in cls._fields))


PLAIN = Loops.of(loops)
"""As they are written down: slow, for comparison."""


def installed() -> Loops | None:
    """Machine code, if it came with this installation."""
    made = _made_of(loops)
    return None if made is None else Loops.of(made)


def _made_of(module: ModuleType) -> ModuleType | None:
    """Its machine code, unless that was made of something else: sources may have changed since they were installed."""
    package, _, name = module.__name__.rpartition(".")
    try:
        checksums: dict[str, int] = getattr(import_module("sterna_compiled"), "CHECKSUMS", {})
        if checksums.get(name) != _checksum(package, name):
            return None
        return import_module(f"sterna_compiled.{name}")
    except (ImportError, OSError):
        return None


def _checksum(package: str, name: str) -> int:
    return crc32(b"".join(get_data(package, f"{name}.{ending}") or b"" for ending in ("py", "pxd")))


class _Chosen:
    loops = installed()


def machine_code() -> Loops | None:
    """The loops to use instead of columns; None: there are none."""
    return _Chosen.loops


def is_covered(snapshot: Snapshot) -> bool:
    """Whether the loops of policies know all that counts here: every job has one size, nobody is barred, and none goes
    before the others."""
    return snapshot.is_rigid and snapshot.jobs.barred is None and not snapshot.jobs.has_priorities


def twin_of(module: ModuleType) -> Any:
    """The same module as machine code, if there is any and it is in use; else itself."""
    return module if machine_code() is None else _made_of(module) or module


def use(loops: Loops | None) -> None:
    """From now on, in this process."""
    _Chosen.loops = loops
