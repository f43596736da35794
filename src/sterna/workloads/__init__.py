"""Traces of jobs to replay: read from the files that clusters published, or generated from a seed. Decides nothing."""
