"""The DRAGON study: parameter-server jobs, elapsed time and utilisation beside the published ones.

The workload itself is in `sterna.workloads.published`.
"""
