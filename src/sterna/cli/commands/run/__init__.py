"""Commands that run a program: daemon, operator, monitor, demo.

They wire settings and start it; the programs themselves are in `sterna.apps`.
"""
