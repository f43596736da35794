"""`LaunchSpec`: the content of `launch.json`, for daemon and shim.

Written by hand, because a dataclass would cost every shim memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sterna.backends.local.kernel.record_files import LAUNCH_FILE, JsonRecord, read_record

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
        """The complete environment: nothing is inherited."""
        self.cwd = cwd
        self.grace_seconds = grace_seconds
        """Seconds between stop request and kill, unless the request has its own."""
        self.groups = tuple(groups)
        """Control group folders, entered before exec."""
        self.cpus = None if cpus is None else tuple(cpus)
        self.nice = nice
        self.log_bytes = log_bytes
        """Size at which the log is rotated; 0: never."""
        self.uid = uid
        self.gid = gid

    def to_record(self) -> JsonRecord:
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
    def from_record(record: JsonRecord) -> LaunchSpec:
        """Parse a record; raise ValueError, KeyError or TypeError if `to_record` did not write it."""
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
    """Read the file; return None if it is absent or unreadable."""
    record = read_record(folder, LAUNCH_FILE)
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
