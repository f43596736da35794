# C types of job_table.py.
cimport cython
from libc.stdint cimport int64_t

cdef bint _IS_COMPILED

cdef class ActiveTable:
    cdef public dict sources
    cdef public dict columns
    cdef public Py_ssize_t count
    cdef public Py_ssize_t first
    cdef object _block
    cdef int64_t[:, ::1] cells
    cdef double[:, ::1] reals
    cdef list _names
    cdef dict _line
    cdef list _is_real
    cdef list _snapshot_columns
    cdef list _synced

    @cython.locals(line=cython.Py_ssize_t)
    cpdef write(self, str name, Py_ssize_t place, value)
    cpdef set_cell(self, Py_ssize_t line, Py_ssize_t place, value)
    cpdef bint holds(self, Py_ssize_t place, int64_t key)
    @cython.locals(low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t)
    cpdef Py_ssize_t place_of(self, int64_t key)
    @cython.locals(start=cython.Py_ssize_t, end=cython.Py_ssize_t, line=cython.Py_ssize_t)
    cpdef append(self, Py_ssize_t first, Py_ssize_t last)
    @cython.locals(cells=int64_t[:, ::1], first=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cpdef remove(self, Py_ssize_t place)

cdef class Line:
    cdef ActiveTable _table
    cdef list _names
    cdef list _start
    cdef list _slope
    cdef list _most
    cdef bint _rises
    cdef Py_ssize_t _line

    @cython.locals(start=double, at=cython.Py_ssize_t, table=ActiveTable)
    cpdef set(self, Py_ssize_t key, Py_ssize_t place, double value, double slope=*, double since=*)
    @cython.locals(table=ActiveTable, line=cython.Py_ssize_t, first=cython.Py_ssize_t, count=cython.Py_ssize_t)
    cpdef at(self, double now)

cdef class Saving:
    cdef public double every_seconds
    cdef public object can_save
    cdef public bint loses_work, survives_resizes
    cpdef double unsaved_part(self, Py_ssize_t key, double ran_seconds)

cdef class JobStates:
    cdef public Saving saving
    cdef public list version, remaining_work, rate, progress_since, assigned_at, devices, attained, service, spent
    cdef public list executed, executed_before
    cdef public list waiting_since, first_start, waited, finish
    cdef public dict unsaved
    cdef public object workers, promotions
    cdef public ActiveTable table
    cdef public Line remaining_line, attained_line, executed_line, unsaved_line

    @cython.locals(held=double, used=double, ran=double, lost=double)
    cpdef double account(self, Py_ssize_t key, double now, double lost_seconds)
    @cython.locals(ran=double)
    cpdef double unsaved_seconds(self, Py_ssize_t key, double now)
    @cython.locals(seconds=double, rate=double, part=double, more=double)
    cpdef double account_unsaved(self, Py_ssize_t key, double ran, double lost_seconds, double lost)
    cpdef begin(self, Py_ssize_t key, Py_ssize_t place, double now)
    cpdef charge(self, Py_ssize_t key, Py_ssize_t place, double device_seconds)
    cpdef promote(self, Py_ssize_t key, Py_ssize_t place)
    @cython.locals(since=double, left=double, before=double)
    cpdef double assign(
        self, Py_ssize_t key, Py_ssize_t place, int64_t size, double devices, double rate, double now, double pause
    )
    cpdef release(self, Py_ssize_t key)
    cpdef mark_waiting(self, Py_ssize_t key, Py_ssize_t place, double now)
    cpdef mark_finished(self, Py_ssize_t key, double now)

@cython.locals(place=cython.Py_ssize_t, at=cython.Py_ssize_t)
cdef _evaluate(
    double[:, ::1] reals, Py_ssize_t line, Py_ssize_t first, double now, bint has_most, bint rises, double[::1] value
)
