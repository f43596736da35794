"""Starting, supervising and killing the processes of one replica: zygote, shim, launcher and their files.

Whether a replica should run is decided in `jobs`.
"""
