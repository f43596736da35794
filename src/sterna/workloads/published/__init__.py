"""Workloads that others published, shipped with the package so that a reproduction needs no download."""
