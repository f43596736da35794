"""The simulator of CPU-shared nodes, where containers without requests divide a node's cores.

The simulator of whole devices is the package above.
"""
