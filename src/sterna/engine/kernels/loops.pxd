# The types with which loops.py is compiled. Columns that are only read may be read-only and of any stride.
cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef double _NEVER
cdef int64_t _NO_END
cdef int64_t MILLI

@cython.locals(changes=bint, row=cython.Py_ssize_t)
cpdef bint fit_in_order(
    const int64_t[:] size, const int64_t[:] cost, const int64_t[:] workers, int64_t free, int64_t smallest,
    int64_t held, int64_t[::1] target
)

@cython.locals(rows=int64_t[::1], place=cython.Py_ssize_t)
cpdef fit_by_key(
    const double[:] key, const int64_t[:] size, const int64_t[:] cost, const int64_t[:] workers,
    int64_t free, int64_t smallest, int64_t[::1] target
)

@cython.locals(
    until=double, due=double, soonest=double, left=double, returns=bint, is_wanted=bint, row=cython.Py_ssize_t
)
cpdef take_turns(
    const double[:] attained, const double[:] executed, const double[:] waiting_since, const double[:] first_start,
    const int64_t[:] size, const int64_t[:] cost, const int64_t[:] workers, double now, double near, double threshold,
    double promote, int64_t free, int64_t smallest, int64_t unit, uint8_t[::1] second, uint8_t[::1] promoted,
    int64_t[::1] target
)

@cython.locals(
    rows=int64_t[::1], waiting=int64_t, need=int64_t, held=int64_t, started=int64_t, count=int64_t, stay=int64_t,
    row=cython.Py_ssize_t, place=cython.Py_ssize_t
)
cdef bint _serve(
    uint8_t[::1] second, const double[:] first_start, const int64_t[:] size, const int64_t[:] cost,
    const int64_t[:] workers, int64_t free, int64_t smallest, int64_t[::1] target
)

@cython.locals(count=int64_t, row=cython.Py_ssize_t)
cdef int64_t _of_second(
    uint8_t[::1] second, const int64_t[:] workers, const int64_t[:] cost, bint runs, int64_t most, int64_t[::1] rows
) noexcept

@cython.locals(total=int64_t, place=cython.Py_ssize_t)
cdef int64_t _sum_of(const int64_t[:] cost, int64_t[::1] rows, int64_t count) noexcept

@cython.locals(rows=list, row=cython.Py_ssize_t)
cpdef list differing(const int64_t[:] target, const int64_t[:] workers)

@cython.locals(
    runs=list, before=list, node=cython.Py_ssize_t, room=int64_t, here=int64_t, place=cython.Py_ssize_t
)
cpdef list runs_for(int64_t[::1] free, int64_t count, int64_t need)

@cython.locals(
    many=list, runs=list, most=int64_t, behind=cython.Py_ssize_t, rest=int64_t, rest_node=cython.Py_ssize_t,
    left=int64_t, node=cython.Py_ssize_t, here=int64_t
)
cpdef list runs_for_many(int64_t[::1] free, int64_t count, int64_t need, int64_t jobs)

@cython.locals(
    best=cython.Py_ssize_t, most=cython.Py_ssize_t, node=cython.Py_ssize_t, room=int64_t, least_room=int64_t,
    most_room=int64_t
)
cdef Py_ssize_t _seat_for(int64_t[::1] free, int64_t wanted) noexcept

@cython.locals(node=cython.Py_ssize_t)
cdef Py_ssize_t _as_empty(int64_t[::1] free, Py_ssize_t first, int64_t room) noexcept

@cython.locals(
    ends=int64_t[::1], parts=cython.Py_ssize_t, begin=cython.Py_ssize_t, end=cython.Py_ssize_t,
    found=cython.Py_ssize_t, place=cython.Py_ssize_t, total=int64_t, least=int64_t
)
cdef int64_t _fitting(
    int64_t[::1] rows, int64_t count, const double[:] key, const int64_t[:] cost, const int64_t[:] workers,
    int64_t free, int64_t smallest
)

@cython.locals(
    middle=cython.Py_ssize_t, last=cython.Py_ssize_t, bound=cython.Py_ssize_t, place=cython.Py_ssize_t, pivot=int64_t
)
cdef Py_ssize_t _split(
    int64_t[::1] rows, Py_ssize_t begin, Py_ssize_t end, const double[:] key, const int64_t[:] workers
) noexcept

@cython.locals(mine=double, its=double)
cdef bint _precedes(int64_t one, int64_t other, const double[:] key, const int64_t[:] workers) noexcept

@cython.locals(
    stops=list, wishes=list, starts=list, runs=list, row=cython.Py_ssize_t, node=cython.Py_ssize_t, count=int64_t,
    size=int64_t, here=int64_t
)
cpdef list start_and_stop(
    list rows, const int64_t[:] target, const int64_t[:] keys, assignments, int64_t[::1] free, int64_t need
)

@cython.locals(
    seen=set, taken=dict, row=cython.Py_ssize_t, old=int64_t, new=int64_t, count=int64_t, node=cython.Py_ssize_t
)
cpdef bint are_fine(
    actions, const int64_t[:] keys, const int64_t[:] minimum, const int64_t[:] maximum, assignments, const int64_t[:] free,
    int64_t need
)

cdef _kind_of(int64_t old, int64_t new)
