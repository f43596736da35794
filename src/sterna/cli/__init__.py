"""The command line: one module per command, with shared options, connections and output.

No scheduling logic belongs here.
"""
