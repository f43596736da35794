"""The snapshot: everything that may be known at one instant, as columns.

Job rows are in (submit, name) order, so the row itself is the tie-break. Columns are fetched from the backend the
first time a rule reads them and are read-only; they hold until the next `observe`. A snapshot holds only jobs that
want to run: neither those that ended nor, in a simulation, those that have not been submitted yet.
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
"""A backend's own number for a job: the same in every snapshot, whatever its row."""

NEVER = float("inf")

Scalar = TypeVar("Scalar", bound=np.generic)


class JobSource(Protocol):
    """Where the columns of a `Jobs` table come from."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> npt.NDArray[Any]:
        """One entry for each job, in order; not to be written to, so best made read-only."""
        ...

    def name_of(self, row: int) -> str: ...


class Column(Generic[Scalar]):
    """A column that is fetched once, when first read."""

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
    """A column that not every source knows; where it does not, every job has the default."""

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

    key = Column[np.int64]("The backend's number for the job.")
    submit = Column[np.float64]("When it was submitted, in seconds.")
    priority = Column[np.int64]("Higher goes first; 0 is the default.")
    minimum = Column[np.int64]("Fewest workers it can train with.")
    maximum = Column[np.int64]("Most workers it may have now; below the minimum: it may not run now.")
    request = Column[np.int64]("Workers its user asked for.")
    workers = Column[np.int64]("Workers it has now; 0 while it waits.")
    shape = Column[np.int64]("Index into `Snapshot.shapes`.")
    curve = Column[np.int64]("Row of `Snapshot.curves`.")
    remaining = Column[np.float64]("Work left, in seconds at one worker; no number where the total is unknown.")
    first_start = Column[np.float64]("When it first started; `NEVER` if it has not.")
    waiting_since = Column[np.float64](
        "Since when it has had no workers; for a running job, when it last began to wait."
    )
    attained = Column[np.float64]("Device-seconds it has used since it was last promoted, or ever.")
    executed = Column[np.float64]("Seconds it has run in all.")
    promotions = Column[np.int64]("Mark: how often it was promoted.")
    executed_before = OptionalColumn[np.float64]("Mark: seconds it had run when it was last promoted.", 0.0)
    most_cores = OptionalColumn[np.float64]("Cores that one worker can use; NaN where nodes are not shared.", np.nan)
    cpu_share = OptionalColumn[np.float64]("Its weight on the CPUs of a shared node; 1 is an equal share.", 1.0)
    growth = OptionalColumn[np.int64]("Growth category, as a number of `Growth`.", 0)
    growth_rate = OptionalColumn[np.float64](
        "Part of its whole improvement so far that it gained a second lately; no number if unknown.", np.nan
    )
    growth_since = OptionalColumn[np.float64]("When its growth category last changed.", -NEVER)
    unsaved = OptionalColumn[np.float64]("Seconds of work since its last checkpoint.", 0.0)
    moves = OptionalColumn[np.int64]("Mark: how often it was moved.", 0)
    moved_at = OptionalColumn[np.float64]("Mark: when it was last moved.", -NEVER)
    moved_from = OptionalColumn[np.int64]("Mark: the node that it last left for another; -1 if none.", -1)
    evictor = OptionalColumn[np.int64]("Mark: the number of the job that it was last moved for; -1 if none.", -1)
    default_finish = OptionalColumn[np.float64](
        "When it ends or has ended in the shadow run of the default scheduler, as far as can be told now.", np.nan
    )

    def __init__(self, source: JobSource, barred: Bools | None = None, known: Mapping[str, Any] | None = None) -> None:
        """What is `known` need be neither fetched nor worked out: for a backend that has it all at hand."""
        if known:
            self.__dict__.update(known)
        self.source = source
        self.barred = barred
        """Jobs whose maximum is below their minimum: they may not run now. None: there are none."""

    def __len__(self) -> int:
        return len(self.source)

    def name_of(self, row: int) -> str:
        return self.source.name_of(row)

    def capped(self, most: Ints) -> Jobs:
        """The same jobs, none of which may have more than `most` workers."""
        maximum = np.minimum(self.maximum, most)
        barred = maximum < self.minimum
        known = {"has_priorities": self.has_priorities}
        return Jobs(_Capped(self, maximum), barred if barred.any() else None, known)

    @cached_attribute
    def has_priorities(self) -> bool:
        return bool(self.priority.any())


class ColumnSource:
    """Jobs that somebody wrote down, each column whole: a source for a described or a recorded cluster."""

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


class _Capped:
    """Jobs with another `maximum`; every other column is shared with the table it came from."""

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
    """Where each running job sits; a job that waits is absent."""
    free_units: int
    """What is free on nodes that take any of these jobs, in units: thousandths of a device, or of a CPU on a cluster
    without devices."""
    held_units: int
    """What our jobs hold."""
    least_units: int
    """What all jobs would hold together, each at its minimum."""
    max_workers: int
    """No job may have more workers than this."""
    is_rigid: bool
    """Every job has one size only, its minimum is its maximum, and who runs has it: nothing was lost since."""
    last_action: float = -NEVER
    """When anything was last started, stopped or resized."""
    history: Callable[[], Floats] = field(default=lambda: np.zeros(0), repr=False)
    """Makes `finished_service`, which few rules read."""
    restart_seconds: float = 0.0
    """What a start, a move or a resize by restart costs a job, as far as known."""
    last_event: float = -NEVER
    """When a job last arrived or ended, as far as the backend tells."""
    serving: Sequence[ServingPod] = ()
    """Serving pods that are not bound yet."""
    has_cpu_shares: bool = False
    """Some job's share is not an equal one; to a migration: a rule divides shared nodes."""

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
        """Device-seconds of every job that completed, ascending: what a policy may know of how long jobs last."""
        return self.history()

    def key_of(self, row: int) -> JobKey:
        return JobKey(self.jobs.key.item(row))

    def shape_of(self, row: int) -> Shape:
        return self.shapes.rows[self.jobs.shape.item(row)]

    def assignment_of(self, row: int) -> Assignment:
        return self.assignments.get(JobKey(self.jobs.key.item(row)), NOWHERE)

    @property
    def units(self) -> int:
        """All that our jobs hold or could hold."""
        return self.free_units + self.held_units

    @property
    def minimum_for_all(self) -> Ints:
        """The one size of everybody; if everybody has it, the column that says so, and nobody need compare."""
        everybody_runs = self.is_rigid and self.held_units == self.least_units and self.smallest_need > 0
        return self.jobs.workers if everybody_runs else self.jobs.minimum

    @property
    def all_fit(self) -> bool:
        """Everybody can have its one size at once, so that no order matters."""
        return self.is_rigid and self.least_units <= self.free_units + self.held_units and self.jobs.barred is None

    @cached_attribute
    def cost_table(self) -> CostTable:
        """Units by shape."""
        return self.shapes.cost_table(self.nodes.unit)

    @property
    def smallest_need(self) -> int:
        """Units of the smallest worker of any shape; 0 if some need none of what is counted."""
        return self.cost_table.smallest

    @cached_attribute
    def need(self) -> Ints:
        """Units of one worker, by job."""
        return self.cost_table.worker.take(self.jobs.shape)

    @cached_attribute
    def base(self) -> Ints:
        """Units that a job holds beside its workers, by job: its parameter servers."""
        return self.cost_table.ps.take(self.jobs.shape)

    @property
    def has_base(self) -> bool:
        return self.cost_table.has_ps

    @cached_attribute
    def fits_max_size(self) -> bool:
        """The empty cluster holds any job at the widest."""
        return self.max_workers <= min(self.nodes.most_workers(self.shapes))

    @cached_attribute
    def devices_only(self) -> bool:
        """Nothing counts but whole devices, as many for every worker, and every node takes everybody."""
        shapes = self.shapes.rows
        return len(shapes) == 1 and shapes[0].devices_only and self.nodes.is_open_to_all

    @property
    def is_uniform(self) -> bool:
        """Every worker of every job needs the same."""
        return self.cost_table.is_uniform

    @cached_attribute
    def minimum_cost(self) -> Ints:
        """Units of each job at its minimum."""
        return self.cost(self.jobs.minimum)

    def cost(self, workers: Ints) -> Ints:
        """Units that each job holds with that many workers."""
        cost_table = self.cost_table
        if cost_table.is_uniform:
            return workers * cost_table.smallest
        units = workers * self.need
        return np.where(workers > 0, units + self.base, 0) if cost_table.has_ps else units


class Totals(NamedTuple):
    """The sums that a snapshot carries; backends that do not keep count take stock anew."""

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
