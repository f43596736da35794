"""Workloads that others published, shipped with the package so that a reproduction needs no download.

The studies that run them are in `sterna.experiments.reproduction`.
"""
