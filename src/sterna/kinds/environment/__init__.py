"""Environment variables that training frameworks look for: TF_CONFIG, MASTER_ADDR and PET_*, the MPI hostfile.

Pure functions of a job and a replica; backends add them to processes and pods.
"""
