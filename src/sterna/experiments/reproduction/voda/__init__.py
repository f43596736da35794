"""The Voda study: 24 jobs on 3 x 4 devices beside the published restarts, and a model of Voda's algorithms.

The workload itself is in `sterna.workloads.published`.
"""
