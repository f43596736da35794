"""Simulator of CPU-shared nodes, whose containers divide a node's cores.

The simulator of whole devices is the parent package.
"""
