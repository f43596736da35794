"""The model of CPU-shared nodes used by migrations and CPU-share rules: load, forecast, gain of a move.

The rules themselves are in `sterna.migrations` and `sterna.cpu_shares`.
"""
