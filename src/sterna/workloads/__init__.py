"""Traces of jobs to replay: read from published files, made from records, or generated from a seed.

A trace knows durations, so nothing here may import the engine or the model, and no rule may import this package.
"""
