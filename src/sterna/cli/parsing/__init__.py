"""Options, flags and arguments shared by commands, and the wording of usage errors.

No command lives here.
"""
