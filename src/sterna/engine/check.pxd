# C types of check.py.
cimport cython
from libc.stdint cimport int64_t

ctypedef const int64_t whole

@cython.locals(minimum=whole[:], maximum=whole[:], keys=whole[:], seen=set, row=cython.Py_ssize_t, size=int64_t)
cdef _check_jobs(actions, snapshot)

@cython.locals(
    shapes=tuple, codes=whole[:], free=whole[:, :], free_before=whole[:, :], node=cython.Py_ssize_t,
    kind=cython.Py_ssize_t
)
cdef _check_nodes(actions, snapshot)

@cython.locals(
    lowest=cython.Py_ssize_t, highest=cython.Py_ssize_t, node=cython.Py_ssize_t, pairs=tuple
)
cdef bint _are_on_nodes(actions, Py_ssize_t nodes) except -1

@cython.locals(count=int64_t)
cdef _check_gang(action, shape, snapshot)
