"""Policies: how many workers each job gets. One file per rule, found by import.

A policy is a pure function of a `Snapshot`; nodes are chosen by a placement.
"""
