"""Reconcilers: one for each way in which the pods of a job are owned, and the handling of write results.

They turn desired assignments into writes. What the desired assignment is, the engine decides.
"""
