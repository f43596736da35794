"""One file per kind of job a user can submit, found by import; used by the local and the Kubernetes backend alike.

A kind module defines one `Kind` record. `parsing/` holds what the kinds share while they read a manifest,
`environment/` the variables that frameworks look for. Nothing here knows a backend, a server, a process or a clock.
"""
