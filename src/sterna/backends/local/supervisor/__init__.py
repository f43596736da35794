"""Starting, supervising and killing the processes of one replica: zygote, shim, launcher and their files.

`jobs` decides which replicas run.
"""
