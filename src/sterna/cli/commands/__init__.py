"""One module per command, grouped by what the command works on.

A command parses options, calls a service, and renders; nothing else.
"""
