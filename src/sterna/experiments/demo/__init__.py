"""The demo: a dozen small models trained three ways on this machine, and the comparison.

Only `sterna demo` uses it.
"""
