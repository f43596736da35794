# C types of bin_packing.py. Columns that are only read (`whole`, `real`) may be read-only and of any stride.
cimport cython
from libc.stdint cimport int64_t, uint8_t

ctypedef const int64_t whole
ctypedef const double real

cdef bint _IS_COMPILED
cdef double _UNKNOWN
cdef int64_t _LARGEST

@cython.locals(costs=whole[:], mask=uint8_t[::1], at=cython.Py_ssize_t)
cpdef first_fit(cost, int64_t free, int64_t smallest=*, bint skip=*)

@cython.locals(
    candidates=int64_t[::1], costs=whole[:], keys=real[:],
    running=whole[:], ends=int64_t[::1], result=int64_t[::1], partitions=cython.Py_ssize_t,
    begin=cython.Py_ssize_t, end=cython.Py_ssize_t, found=cython.Py_ssize_t, at=cython.Py_ssize_t, total=int64_t,
    least=int64_t
)
cpdef first_fit_by_key(rows, key, cost, workers, int64_t free, int64_t smallest=*)

@cython.locals(
    middle=cython.Py_ssize_t, last=cython.Py_ssize_t, bound=cython.Py_ssize_t, at=cython.Py_ssize_t, pivot=int64_t
)
cdef Py_ssize_t _split(
    int64_t[::1] rows, Py_ssize_t begin, Py_ssize_t end, real[:] key, whole[:] workers
) except -1

@cython.locals(mine=double, its=double)
cdef bint _precedes(int64_t row, int64_t other, real[:] key, whole[:] workers) except -1

@cython.locals(
    units=int64_t[::1], assignments=list, pairs=list, most=int64_t, behind=cython.Py_ssize_t, rest=int64_t,
    rest_node=cython.Py_ssize_t, left=int64_t, node=cython.Py_ssize_t, here=int64_t
)
cpdef list best_fit(free, int64_t need, int64_t count, int64_t jobs=*)

@cython.locals(
    best=cython.Py_ssize_t, most=cython.Py_ssize_t, node=cython.Py_ssize_t, units=int64_t, least_free=int64_t,
    most_free=int64_t
)
cdef Py_ssize_t _tightest(int64_t[::1] free, int64_t wanted) except -2

@cython.locals(node=cython.Py_ssize_t)
cdef Py_ssize_t _next_with(int64_t[::1] free, int64_t units, Py_ssize_t first) except -2

cdef _readable(column)
cdef _writable(column)
