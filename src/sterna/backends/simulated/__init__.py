"""The simulator: a backend that jumps from event to event on a virtual clock.

It knows the future of its jobs (a `Workload` made from a trace) and shows rules a `Snapshot` only. Rules, trace
formats and reports do not belong here.
"""
