"""The snapshot: everything that rules may know at one instant, as columns.

Job rows are in (submit, name) order, so the row number is the tie-break. A column is fetched from the backend when a
rule first reads it; it is read-only and valid until the next `observe`. A snapshot holds only jobs that want to run,
not those that ended nor, in a simulation, those that will be submitted later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, NewType, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

from sterna.model.cached_attribute import cached_attribute
from sterna.model.cluster import NOWHERE, Assignment, Bools, CostTable, Ints, Nodes, ResourceKind, Shape, Shapes
from sterna.model.serving_pod import ServingPod
from sterna.model.speedup import Curves, Floats

JobKey = NewType("JobKey", int)
"""Number that a backend gives a job: the same in every snapshot, unlike its row."""

NEVER = float("inf")

Scalar = TypeVar("Scalar", bound=np.generic)


class JobSource(Protocol):
    """Provider of the columns of a `Jobs` table."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one entry per job, in row order, as a read-only array; raise `KeyError` if the source has none."""
        ...

    def name_of(self, row: int) -> str: ...


class Column(Generic[Scalar]):
    """Column that is fetched when first read."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, jobs: None, owner: type) -> Column[Scalar]: ...

    @overload
    def __get__(self, jobs: Jobs, owner: type) -> npt.NDArray[Scalar]: ...

    def __get__(self, jobs: Jobs | None, owner: type) -> npt.NDArray[Scalar] | Column[Scalar]:
        if jobs is None:
            return self
        values: npt.NDArray[Scalar] = jobs.source.column(self.name)
        jobs.__dict__[self.name] = values
        return values


class OptionalColumn(Column[Scalar]):
    """Column with a default for sources that do not have it."""

    def __init__(self, doc: str, default: float) -> None:
        super().__init__(doc)
        self.default = default

    @overload
    def __get__(self, jobs: None, owner: type) -> OptionalColumn[Scalar]: ...

    @overload
    def __get__(self, jobs: Jobs, owner: type) -> npt.NDArray[Scalar]: ...

    def __get__(self, jobs: Jobs | None, owner: type) -> npt.NDArray[Scalar] | OptionalColumn[Scalar]:
        if jobs is None:
            return self
        values: npt.NDArray[Any]
        try:
            values = jobs.source.column(self.name)
        except KeyError:
            kind = np.int64 if isinstance(self.default, int) else np.float64
            values = np.full(len(jobs), self.default, dtype=kind)
            values.flags.writeable = False
        jobs.__dict__[self.name] = values
        return values


class Jobs:
    """The jobs that want to run, one row each."""

    key = Column[np.int64]("Number that the backend gives the job.")
    submit = Column[np.float64]("Submission time, in seconds.")
    priority = Column[np.int64]("Higher goes first; 0 is the default.")
    minimum = Column[np.int64]("Fewest workers the job can train with.")
    maximum = Column[np.int64]("Most workers the job may have now; below the minimum: it may not run now.")
    request = Column[np.int64]("Workers that the user requested.")
    workers = Column[np.int64]("Workers the job has now; 0 while it waits.")
    shape = Column[np.int64]("Index into `Snapshot.shapes`.")
    curve = Column[np.int64]("Row of `Snapshot.curves`.")
    remaining = Column[np.float64]("Remaining work, in seconds at one worker; NaN if the total is unknown.")
    first_start = Column[np.float64]("Time of the first start; `NEVER` before it.")
    waiting_since = Column[np.float64]("Time at which the job last began to wait.")
    attained = Column[np.float64]("Device-seconds used since the last promotion, or in all.")
    executed = Column[np.float64]("Seconds that the job has run in all.")
    promotions = Column[np.int64]("Mark: number of promotions.")
    executed_before = OptionalColumn[np.float64]("Mark: `executed` at the last promotion.", 0.0)
    most_cores = OptionalColumn[np.float64]("Cores that one worker can use; NaN where nodes are not shared.", np.nan)
    cpu_share = OptionalColumn[np.float64]("Weight on the CPUs of a shared node; 1 is an equal share.", 1.0)
    growth = OptionalColumn[np.int64]("Growth category, as a value of `Growth`.", 0)
    growth_rate = OptionalColumn[np.float64](
        "Fraction of the improvement so far that the job gained per second recently; NaN if unknown.", np.nan
    )
    growth_since = OptionalColumn[np.float64]("Time of the last change of the growth category.", -NEVER)
    unsaved = OptionalColumn[np.float64]("Seconds of work that a stop now would lose.", 0.0)
    can_save = OptionalColumn[np.int64](
        "1 if the job has shown that it can save; else it is not stopped for order, growth or balance.", 1
    )
    restart_seconds = OptionalColumn[np.float64](
        "Estimated time without progress after a restart; NaN: `Snapshot.restart_seconds`.", np.nan
    )
    resize_seconds = OptionalColumn[np.float64](
        "Estimated time without progress at a resize in place; NaN: a resize is a checkpoint and a restart.", np.nan
    )
    move_seconds = OptionalColumn[np.float64](
        "Estimated time without progress at a move in place; NaN: a move is a checkpoint and a restart.", np.nan
    )
    spent = OptionalColumn[np.float64](
        "Mark: device-seconds that stops, resizes and moves have cost the job so far.", 0.0
    )
    may_preempt = OptionalColumn[np.int64](
        "0 if the job failed before it ran well: it starts only on free capacity.", 1
    )
    not_before = OptionalColumn[np.float64](
        "Earliest time of the next start; until then the job keeps its place in the queue but does not start.", -NEVER
    )
    requested_seconds = OptionalColumn[np.float64](
        "Run time that the user requested, with `request` workers; NaN if unknown.", np.nan
    )
    last_start = OptionalColumn[np.float64]("Time of the last start; `-NEVER` before it or if unknown.", -NEVER)
    moves = OptionalColumn[np.int64]("Mark: number of moves.", 0)
    moved_at = OptionalColumn[np.float64]("Mark: time of the last move.", -NEVER)
    moved_from = OptionalColumn[np.int64]("Mark: node that the job left in its last move; -1 if none.", -1)
    evictor = OptionalColumn[np.int64]("Mark: key of the job that the last move made room for; -1 if none.", -1)
    default_finish = OptionalColumn[np.float64](
        "Predicted completion under the default scheduler (equal CPU shares); NaN if unknown.", np.nan
    )

    def __init__(self, source: JobSource, barred: Bools | None = None, known: Mapping[str, Any] | None = None) -> None:
        """`known` holds columns and cached attributes that are not to be fetched or computed again."""
        if known:
            self.__dict__.update(known)
        self.source = source
        self.barred = barred
        """Mask of jobs that may not run now, because their maximum is below their minimum. None: no such job."""

    def __len__(self) -> int:
        return len(self.source)

    def name_of(self, row: int) -> str:
        return self.source.name_of(row)

    def with_max_workers(self, most: Ints) -> Jobs:
        """Return these jobs with `maximum` lowered to at most `most`, by row."""
        maximum = np.minimum(self.maximum, most)
        barred = maximum < self.minimum
        known = {"has_priorities": self.has_priorities}
        return Jobs(_CappedSource(self, maximum), barred if barred.any() else None, known)

    @cached_attribute
    def has_priorities(self) -> bool:
        return bool(self.priority.any())


class ColumnSource:
    """Source that holds complete columns: for cluster files and journals."""

    def __init__(self, names: Sequence[str], columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._names, self._columns = names, columns
        for column in columns.values():
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self._names)

    def column(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def name_of(self, row: int) -> str:
        return self._names[row]


class SelectedJobs:
    """Source of some rows of another table, with some columns replaced."""

    def __init__(self, jobs: Jobs, rows: Ints, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._jobs, self._rows, self._columns = jobs, rows, columns

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self._columns[name] if name in self._columns else getattr(self._jobs, name)
        selected = values[self._rows]
        selected.flags.writeable = False
        return selected

    def name_of(self, row: int) -> str:
        return self._jobs.name_of(self._rows.item(row))


class _CappedSource:
    """Source with another `maximum`; all other columns are those of the original table."""

    def __init__(self, jobs: Jobs, maximum: Ints) -> None:
        self._jobs, self._maximum = jobs, maximum

    def __len__(self) -> int:
        return len(self._jobs)

    def column(self, name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self._maximum if name == "maximum" else getattr(self._jobs, name)
        return values

    def name_of(self, row: int) -> str:
        return self._jobs.name_of(row)


@dataclass(eq=False)
class Snapshot:
    """The cluster at one instant. Rules share it, so it is not modified after construction; `dataclasses.replace` makes
    a changed copy."""

    now: float
    jobs: Jobs
    nodes: Nodes
    shapes: Shapes
    curves: Curves
    assignments: Mapping[JobKey, Assignment]
    """Assignment of each running job; a waiting job is absent."""
    free_units: int
    """Free units on nodes that accept any of these jobs: thousandths of a device, or of a CPU on a cluster without
    devices."""
    held_units: int
    """Units that these jobs hold."""
    least_units: int
    """Units that all jobs together would hold at their minimum."""
    max_workers: int
    """Upper bound on the workers of any job."""
    is_rigid: bool
    """For every job minimum and maximum are equal, and running jobs have that size."""
    last_action: float = -NEVER
    """Time of the last start, stop or resize of any job."""
    history: Callable[[], Floats] = field(default=lambda: np.zeros(0), repr=False)
    """Computes `finished_service`, which few rules read."""
    restart_seconds: float = 0.0
    """Estimated time without progress after a start, a move or a resize by restart."""
    last_event: float = -NEVER
    """Time at which a job last arrived or ended, if the backend records it."""
    serving: Sequence[ServingPod] = ()
    """Pending serving pods."""
    has_cpu_shares: bool = False
    """Some job's CPU share is not 1; to a migration: a CPU share rule is active."""
    evicts_unsaved: bool = False
    """The administrator allows serving pods and higher priorities to stop jobs that have not shown that they can
    save."""

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Snapshot:
        """Build a snapshot that takes `fields` over as its `__dict__`, unchecked.

        For the simulator, which makes a million of them: it skips the 17 assignments of the constructor and can
        pre-compute cached attributes, which are entries of `fields` like any other.
        """
        snapshot = cls.__new__(cls)
        snapshot.__dict__ = fields
        return snapshot

    @cached_attribute
    def finished_service(self) -> Floats:
        """Device-seconds of every completed job, ascending."""
        return self.history()

    def key_of(self, row: int) -> JobKey:
        return JobKey(self.jobs.key.item(row))

    def shape_of(self, row: int) -> Shape:
        return self.shapes.rows[self.jobs.shape.item(row)]

    def assignment_of(self, row: int) -> Assignment:
        return self.assignments.get(JobKey(self.jobs.key.item(row)), NOWHERE)

    @property
    def units(self) -> int:
        """Units that these jobs hold or could hold."""
        return self.free_units + self.held_units

    @property
    def minimum_for_all(self) -> Ints:
        """The minimum of every job. If all jobs run at it, the `workers` column itself, so that callers can compare by
        identity."""
        all_run = self.is_rigid and self.held_units == self.least_units and self.smallest_need > 0
        return self.jobs.workers if all_run else self.jobs.minimum

    @property
    def all_fit(self) -> bool:
        """All jobs are rigid and fit at once, so that no order matters."""
        return self.is_rigid and self.least_units <= self.free_units + self.held_units and self.jobs.barred is None

    @cached_attribute
    def changes_are_free(self) -> bool:
        """No stop, resize or move costs any job anything, and every job may preempt and start now."""
        if self.restart_seconds:
            return False
        jobs = self.jobs
        return not (
            jobs.unsaved.any()
            or (jobs.restart_seconds > 0).any()
            or (jobs.resize_seconds > 0).any()
            or (jobs.not_before > self.now).any()
        ) and bool(jobs.can_save.all() and jobs.may_preempt.all())

    @cached_attribute
    def cost_table(self) -> CostTable:
        """Cost in units, by shape."""
        return self.shapes.cost_table(self.nodes.unit)

    @property
    def smallest_need(self) -> int:
        """Units of the smallest worker of any shape; 0 if a shape needs none."""
        return self.cost_table.smallest

    @cached_attribute
    def need(self) -> Ints:
        """Units of one worker, by job."""
        return self.cost_table.worker.take(self.jobs.shape)

    @cached_attribute
    def base(self) -> Ints:
        """Units of the parameter servers, by job."""
        return self.cost_table.ps.take(self.jobs.shape)

    @property
    def has_base(self) -> bool:
        return self.cost_table.has_ps

    @cached_attribute
    def fits_max_size(self) -> bool:
        """The empty cluster has room for `max_workers` workers of any shape."""
        return self.max_workers <= min(self.nodes.most_workers(self.shapes))

    @cached_attribute
    def devices_only(self) -> bool:
        """All workers need the same number of whole devices and nothing else, and every node accepts every job."""
        shapes = self.shapes.rows
        return len(shapes) == 1 and shapes[0].devices_only and self.nodes.is_open_to_all

    @property
    def is_uniform(self) -> bool:
        """All workers of all jobs cost the same."""
        return self.cost_table.is_uniform

    @cached_attribute
    def minimum_cost(self) -> Ints:
        """Units of each job at its minimum."""
        return self.cost(self.jobs.minimum)

    def cost(self, workers: Ints) -> Ints:
        """Return the units that each job holds with this many workers."""
        cost_table = self.cost_table
        if cost_table.is_uniform:
            return workers * cost_table.smallest
        units = workers * self.need
        return np.where(workers > 0, units + self.base, 0) if cost_table.has_ps else units


class Totals(NamedTuple):
    """Sums that a snapshot carries; for backends that do not keep them incrementally."""

    free_units: int
    held_units: int
    least_units: int
    max_workers: int
    is_rigid: bool


def compute_totals(jobs: Jobs, nodes: Nodes, shapes: Shapes) -> Totals:
    takes_any = np.logical_or.reduce([nodes.accepting(shape) for shape in shapes.rows])
    free = int(nodes.free[nodes.unit][takes_any].sum())
    if nodes.unit is ResourceKind.DEVICES:
        free += sum(sum(devices.values()) for node, devices in nodes.shared.items() if takes_any[node])
    cost_table = shapes.cost_table(nodes.unit)
    worker, ps = cost_table.worker[jobs.shape], cost_table.ps[jobs.shape]
    held = int((jobs.workers * worker + (jobs.workers > 0) * ps).sum())
    least = int((jobs.minimum * worker + ps).sum())
    is_rigid = bool(((jobs.minimum == jobs.maximum) & ((jobs.workers == 0) | (jobs.workers == jobs.minimum))).all())
    return Totals(free, held, least, int(jobs.maximum.max(initial=0)), is_rigid)
