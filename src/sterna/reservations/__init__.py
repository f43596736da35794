"""Claims: who goes before all training, whatever the policy. One file each."""
