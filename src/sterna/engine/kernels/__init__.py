"""Hot primitives with one signature each, used by policies, placements and the plan check.

A kernel knows arrays only: no rule, job or node semantics.
"""
