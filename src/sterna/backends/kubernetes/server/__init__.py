"""HTTP endpoints of the operator: progress, migration requests, metrics, health.

Reading jobs for the command line belongs to `query`.
"""
