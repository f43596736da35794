"""Manifests that users have, read into jobs: TrainingJob, TFJob, MPIJob, PyTorchJob, Pod. Way in: `loading.load`."""
