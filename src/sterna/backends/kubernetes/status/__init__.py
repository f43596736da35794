"""What the operator writes back for users: job status, conditions, events, and when each is written.

Deciding a job's phase belongs to `lifecycle`.
"""
