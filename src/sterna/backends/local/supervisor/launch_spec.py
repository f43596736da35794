"""What a daemon wants started: the content of `intent.json`, typed, for both sides.

Written out by hand because the shim reads it too, and a dataclass would bring more memory than the shim has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sterna.backends.local.kernel.record_files import INTENT, Record, read_record

LOG_BYTES = 64 << 20


class LaunchSpec:
    """One start of one replica."""

    __slots__ = ("command", "cpus", "cwd", "env", "gid", "grace_seconds", "groups", "log_bytes", "nice", "token", "uid")

    def __init__(
        self,
        *,
        token: str,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        grace_seconds: float = 30.0,
        groups: Sequence[str] = (),
        cpus: Sequence[int] | None = None,
        nice: int | None = None,
        log_bytes: int = LOG_BYTES,
        uid: int | None = None,
        gid: int | None = None,
    ) -> None:
        self.token = token
        self.command = tuple(command)
        self.env = dict(env)
        """All of it: nothing is inherited from whoever starts the replica."""
        self.cwd = cwd
        self.grace_seconds = grace_seconds
        """Between being asked to stop and being killed, unless the one who asks says otherwise."""
        self.groups = tuple(groups)
        """Control group folders, entered before the command runs."""
        self.cpus = None if cpus is None else tuple(cpus)
        self.nice = nice
        self.log_bytes = log_bytes
        """The log is rotated above it; 0: never."""
        self.uid = uid
        self.gid = gid

    def to_record(self) -> Record:
        return {
            "token": self.token,
            "command": list(self.command),
            "env": self.env,
            "cwd": self.cwd,
            "grace_seconds": self.grace_seconds,
            "groups": list(self.groups),
            "cpus": None if self.cpus is None else list(self.cpus),
            "nice": self.nice,
            "log_bytes": self.log_bytes,
            "uid": self.uid,
            "gid": self.gid,
        }

    @staticmethod
    def from_record(record: Record) -> LaunchSpec:
        """Raises ValueError, KeyError or TypeError on what was not written by `to_record`."""
        command, env, groups, cpus = record["command"], record["env"], record.get("groups"), record.get("cpus")
        if not isinstance(command, list) or not command or not isinstance(env, dict):
            raise ValueError("an intent needs a command and an environment")
        return LaunchSpec(
            token=str(record["token"]),
            command=[str(word) for word in command],
            env={str(name): str(value) for name, value in env.items()},
            cwd=str(record["cwd"]),
            grace_seconds=_number(record.get("grace_seconds")) or 0.0,
            groups=[str(group) for group in groups] if isinstance(groups, list) else (),
            cpus=[int(core) for core in cpus] if isinstance(cpus, list) else None,
            nice=_whole(record.get("nice")),
            log_bytes=_whole(record.get("log_bytes")) or 0,
            uid=_whole(record.get("uid")),
            gid=_whole(record.get("gid")),
        )


def read_launch_spec(folder: str) -> LaunchSpec | None:
    """None if there is none that can be understood."""
    record = read_record(folder, INTENT)
    try:
        return None if record is None else LaunchSpec.from_record(record)
    except (KeyError, TypeError, ValueError):
        return None


def groups_of(folder: str) -> tuple[str, ...]:
    launch_spec = read_launch_spec(folder)
    return () if launch_spec is None else launch_spec.groups


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
