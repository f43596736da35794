"""Pure functions from the pods of a job to its phase, conditions, termination causes and next steps.

No I/O and no mutable state belong here.
"""
