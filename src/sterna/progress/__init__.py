"""Progress as jobs tell it: lines of output, CSV and TensorBoard files, reports of the agent; for whoever watches."""
