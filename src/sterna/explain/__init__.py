"""Answers from a journal: what happened to a job (`narrative.explain`), what would start it (`counterfactual`), and
what another policy would have done (`whatif.whatif`).

Nothing is executed here, and no journal is changed.
"""
