"""What has to be looked at: jobs, rows of a snapshot, and whether a decision could come out differently now."""

from __future__ import annotations

from collections.abc import Iterator

from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.kinds.parsed_job import PodOwnership


class JobIndex:
    """All jobs that are known, by key, by uid and by name."""

    def __init__(self) -> None:
        self.entries: dict[int, JobEntry] = {}
        self.by_uid: dict[str, JobEntry] = {}
        self.key_of: dict[str, int] = {}
        """By `namespace/name`: jobs remember one another so."""
        self._alike: dict[str, list[JobEntry]] = {}
        """Jobs of one name: there may be one of every kind."""
        self._next_key = 1

    def next_key(self) -> int:
        self._next_key += 1
        return self._next_key - 1

    def enter(self, entry: JobEntry) -> None:
        self.entries[entry.key] = self.by_uid[entry.parsed_job.ref.uid] = entry
        self.key_of[entry.name] = entry.key
        self._alike.setdefault(entry.name, []).append(entry)

    def remove(self, entry: JobEntry) -> None:
        del self.entries[entry.key]
        if self.by_uid.get(entry.parsed_job.ref.uid) is entry:
            del self.by_uid[entry.parsed_job.ref.uid]
        alike = self._alike[entry.name]
        alike.remove(entry)
        if self.key_of.get(entry.name) == entry.key:
            del self.key_of[entry.name]
        if alike:
            self.key_of[entry.name] = alike[-1].key
        else:
            del self._alike[entry.name]

    def named(self, name: str, ownership: PodOwnership | None = None) -> JobEntry | None:
        """A job of this name, of those that are carried out so."""
        found = self._alike.get(name, ())
        return next((entry for entry in found if ownership in (None, entry.parsed_job.ownership)), None)


class WorkQueue:
    """Noted as things change, taken as they are seen to."""

    def __init__(self) -> None:
        self.dirty: set[int] = set()
        """Jobs that may not be as they shall be."""
        self.changed: set[int] = set()
        """Jobs whose rows have to be written anew."""
        self.waiting: set[int] = set()
        """Jobs that wait for room, or for a name, to become free."""
        self.has_news = False
        """A decision could come out differently."""

    def note(self, entry: JobEntry) -> None:
        """Something of a job has changed."""
        self.dirty.add(entry.key)
        self.changed.add(entry.key)

    def note_room(self) -> None:
        """Room, or a name, has become free: whoever waits for one looks again."""
        self.dirty |= self.waiting

    def set_waiting(self, entry: JobEntry, is_waiting: bool) -> None:
        if is_waiting:
            self.waiting.add(entry.key)
        else:
            self.waiting.discard(entry.key)

    def forget(self, key: int) -> None:
        for noted in (self.dirty, self.changed, self.waiting):
            noted.discard(key)

    def take_changed(self) -> Iterator[int]:
        changed, self.changed = self.changed, set()
        return iter(changed)
