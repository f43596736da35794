"""The read side for commands: jobs, nodes, logs and history taken from API objects, without reader the operator.

Nothing here changes the cluster except by the verbs that a user calls (create, scale, migrate, delete).
"""
