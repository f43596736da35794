# C types of tiresias_queues.py. Columns that are only read (`whole`, `real`) may be read-only and of any stride.
cimport cython
from libc.stdint cimport int64_t, uint8_t

ctypedef const int64_t whole
ctypedef const double real
ctypedef const uint8_t flag

cdef bint _IS_COMPILED

@cython.locals(
    second=uint8_t[:], returns=uint8_t[:], workers=whole[:], executed=real[:], ran=real[:], waiting_since=real[:],
    now=double, due=double, next_return=double, any_returns=bint, is_ranked=bint, row=cython.Py_ssize_t
)
cpdef assign_queues(snapshot, double threshold, double promote, bint since_promotion)

cdef _run_seconds(jobs, bint since_promotion)

@cython.locals(
    second=flag[:], barred=flag[:], workers=whole[:], table=int64_t[:, :], waiting=cython.Py_ssize_t,
    running=cython.Py_ssize_t, queued=cython.Py_ssize_t, row=cython.Py_ssize_t, costs=whole[:], need=int64_t, held=int64_t
)
cdef _split_rows(snapshot, queues)

cdef _serve_rigid(snapshot, queues)
cdef _read_barred(jobs)
cdef _service_in_queue(jobs, queues)

@cython.locals(
    second=flag[:], barred=flag[:], given=whole[:], workers=whole[:], ran=real[:], used=real[:], cost=whole[:],
    now=double, until=double, demotion=double, left=double, is_wanted=bint, row=cython.Py_ssize_t
)
cpdef next_queue_change(snapshot, queues, target, double threshold, double promote, bint since_promotion)

cdef _readable(column)
