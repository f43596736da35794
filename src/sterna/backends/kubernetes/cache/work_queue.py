"""Work queue of the operator: jobs to reconcile, snapshot rows to rewrite, and whether a new round is needed."""

from __future__ import annotations

from sterna.backends.kubernetes.cache.job_entry import JobEntry


class WorkQueue:
    """Deduplicated sets of job keys, filled by the cache and the controllers and drained by the backend."""

    def __init__(self) -> None:
        self._pending: set[int] = set()
        self._stale_rows: set[int] = set()
        self._blocked: set[int] = set()
        self.needs_round = False
        """True if a decision could differ from the last one."""

    def enqueue(self, entry: JobEntry) -> None:
        """Reconcile the job in the next pass."""
        self._pending.add(entry.key)

    def mark_row_stale(self, entry: JobEntry) -> None:
        """Rewrite the job's row before the next snapshot."""
        self._stale_rows.add(entry.key)

    def mark_changed(self, entry: JobEntry) -> None:
        """Reconcile the job and rewrite its row."""
        self._pending.add(entry.key)
        self._stale_rows.add(entry.key)

    def set_blocked(self, entry: JobEntry, is_blocked: bool) -> None:
        """Mark a job as waiting for node capacity or for a pod name to become free."""
        if is_blocked:
            self._blocked.add(entry.key)
        else:
            self._blocked.discard(entry.key)

    def wake_blocked(self) -> None:
        """Enqueue every blocked job, because capacity or a pod name became free."""
        self._pending |= self._blocked

    def request_round(self) -> None:
        self.needs_round = True

    def clear_round_request(self) -> None:
        self.needs_round = False

    def forget(self, entry: JobEntry) -> None:
        for keys in (self._pending, self._stale_rows, self._blocked):
            keys.discard(entry.key)

    def forget_row(self, entry: JobEntry) -> None:
        """Do not rewrite the row of a job that left the table."""
        self._stale_rows.discard(entry.key)

    def pending(self) -> list[int]:
        """Return the keys of enqueued jobs, in ascending order."""
        return sorted(self._pending)

    def drain(self) -> list[int]:
        """Remove and return the keys of enqueued jobs, in ascending order."""
        pending, self._pending = self._pending, set()
        return sorted(pending)

    def take_stale_rows(self) -> set[int]:
        """Remove and return the keys of jobs whose rows are stale."""
        stale_rows, self._stale_rows = self._stale_rows, set()
        return stale_rows
