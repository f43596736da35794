"""Migrations: which running jobs move to other nodes. One file per rule, found by import.

A migration keeps the number of workers of every job.
"""
