"""The study of remaining time: how often the 80 % band holds the outcome.

The estimator itself is `sterna.model.eta`.
"""
