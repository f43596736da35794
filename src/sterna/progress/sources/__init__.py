"""Progress sources, one file each: `agent` and `stdout`, which every job has, and those that a manifest declares.

What a report means for a job is decided in `sterna.control`.
"""
