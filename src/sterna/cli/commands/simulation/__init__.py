"""Commands on traces, journals and cluster files: simulate, compare, plan, replay and the like.

None of them needs a running cluster.
"""
