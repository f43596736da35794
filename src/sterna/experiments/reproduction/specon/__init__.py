"""The SpeCon study: fifty jobs on four shared nodes beside the published gains.

The workload itself is in `sterna.workloads.published`.
"""
