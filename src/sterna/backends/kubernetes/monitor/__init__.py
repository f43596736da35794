"""The node monitor, one pod per node: reads the progress of the node's pods and sends it to the operator.

It sees pods of its own node only, never jobs, and writes nothing to the API server.
"""
