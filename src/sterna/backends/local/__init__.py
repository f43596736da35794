"""Real training on this machine: nodes are slices of it, replicas are processes."""
