"""Reservations: capacity that is kept or freed for pods other than training. One file per rule, found by import.

A reservation runs before the policy, which sees only the capacity that is left.
"""
