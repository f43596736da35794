"""State on disk: the SQLite database, its schema, job records, the journal table and the node slices.

No processes are started here.
"""
