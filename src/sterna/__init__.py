"""Sterna: a scheduler for deep-learning training that decides in one pure function and explains itself."""

__version__ = "0.1.0"
