"""Progress of training jobs: one file in `sources/` per way in, found by import, and the formats that they read.

Nothing here knows a job, a pod or a backend, or decides what to make of a report.
"""
