"""Environment variables that training frameworks look for: TF_CONFIG, MASTER_ADDR and PET_*, the MPI hostfile."""
