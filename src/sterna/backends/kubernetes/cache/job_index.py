"""Index of all known jobs by key, uid and name."""

from __future__ import annotations

from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.kinds.parsed_job import PodOwnership


class JobIndex:
    """Job entries by key, by uid and by `namespace/name`."""

    def __init__(self) -> None:
        self.entries: dict[int, JobEntry] = {}
        self.by_uid: dict[str, JobEntry] = {}
        self.key_of: dict[str, int] = {}
        """Key of the job added last under each `namespace/name`; persisted state refers to jobs by name."""
        self._by_name: dict[str, list[JobEntry]] = {}
        """Jobs of one name, at most one per kind."""
        self._next_key = 1

    def next_key(self) -> int:
        self._next_key += 1
        return self._next_key - 1

    def add(self, entry: JobEntry) -> None:
        self.entries[entry.key] = self.by_uid[entry.parsed_job.ref.uid] = entry
        self.key_of[entry.name] = entry.key
        self._by_name.setdefault(entry.name, []).append(entry)

    def remove(self, entry: JobEntry) -> None:
        del self.entries[entry.key]
        if self.by_uid.get(entry.parsed_job.ref.uid) is entry:
            del self.by_uid[entry.parsed_job.ref.uid]
        same_name = self._by_name[entry.name]
        same_name.remove(entry)
        if self.key_of.get(entry.name) == entry.key:
            del self.key_of[entry.name]
        if same_name:
            self.key_of[entry.name] = same_name[-1].key
        else:
            del self._by_name[entry.name]

    def find(self, name: str, ownership: PodOwnership | None = None) -> JobEntry | None:
        """Return the oldest job of this name, restricted to one ownership if given."""
        entries = self._by_name.get(name, ())
        return next((entry for entry in entries if ownership in (None, entry.parsed_job.ownership)), None)
