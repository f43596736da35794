"""Requests to the API server: credentials, the HTTP client, list-and-watch (reflector), and the queue of writes.

Nothing here knows what a job is; it moves bytes and typed objects.
"""
