"""Moves that a person or a monitor asks for, checked and handed to the reconcilers.

Moves that rules decide on do not pass through here.
"""
