"""CPU shares: how the CPUs of a shared node are divided among its jobs. One file per rule, found by import.

A CPU share rule never moves or stops a job.
"""
