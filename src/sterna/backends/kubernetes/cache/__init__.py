"""The operator's view of the cluster, kept current by watch deltas: jobs, pods, nodes, progress, the work queue.

It is rebuilt from API objects after a restart. Nothing here sends a request.
"""
