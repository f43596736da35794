"""Measures of a simulation, computed after the run from the times and the changes of its jobs.

Nothing here runs inside the round loop or knows a policy.
"""
