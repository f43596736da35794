"""Run training on this machine: nodes are slices of it, replicas are processes.

Rules and the round loop do not belong here.
"""
