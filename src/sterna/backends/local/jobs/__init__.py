"""The life of a local job: validation, launching attempts, watching processes, exits and restarts.

It uses `supervisor` for processes and `store` for records.
"""
