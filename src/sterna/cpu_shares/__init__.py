"""How the CPUs of a shared node are divided, in place: one rule a file, found by import."""
