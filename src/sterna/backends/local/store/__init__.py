"""State on disk: the SQLite database, its schema, job records, the journal table and the node slices.

Processes are started in `supervisor`.
"""
