"""The round loop and everything around it that is independent of the cluster: the `Backend` protocol, journal, job
state, restart policy, progress tracking.

Decisions belong to `engine`, processes and API calls to `backends`.
"""
