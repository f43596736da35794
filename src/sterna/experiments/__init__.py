"""Experiments on the simulated backend: simulations, comparisons, reports, the demo, reproductions.

`public` is the Python interface. Rules and backends must not import this package.
"""
