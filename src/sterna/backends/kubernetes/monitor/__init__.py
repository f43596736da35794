"""The monitor: one on each node, hears what the pods there tell of their training, and passes it on to the operator."""
