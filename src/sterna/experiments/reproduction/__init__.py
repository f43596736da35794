"""Reproductions of published results: each study is a function from seeds to a `Reproduction`.

Studies build on the simulated backend and the experiments above; nothing outside `sterna reproduce` imports them.
"""
