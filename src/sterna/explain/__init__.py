"""Stories out of a journal: what happened to a job, what would have started it, what other rules would have done.

The verbs are `telling.explain` and `hindsight.whatif`. Nothing is carried out here, and no journal is changed.
"""
