"""Placements: which node each worker runs on. One file per rule, found by import.

A placement carries out a policy's target; it never chooses numbers of workers.
"""
