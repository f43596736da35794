"""Trace formats, one file each, and what their readers share.

Recognising the format of a file and loading it belong to `workloads.load`.
"""
