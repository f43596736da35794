"""A wrong manifest is refused in one sentence: the file, the line, the field, what was found, what is allowed."""

from __future__ import annotations

import pytest

from sterna.errors import UserError
from sterna.kinds.loading import load
from tests.unit.kinds.manifest_texts import MPI_JOB, POD, PYTORCH_JOB, TF_JOB

HEAD = "apiVersion: sterna.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\n"
SPEC = f"{HEAD}spec:\n  command: [python]\n"

REFUSED = [
    (f"{HEAD}spec:\n  comand: [x]\n", "j, line 5: spec has no field 'comand'; did you mean 'command'?"),
    (f"{SPEC}  zzz: 1\n", "j, line 6: spec has no field 'zzz'; choose one of: backoffLimit, category, checkpoint,"),
    (f"{HEAD}spec: {{}}\n", "j, line 4: spec.command is missing; add it."),
    (HEAD, "j, line 1: spec is missing; add it."),
    (f"{SPEC}  workers: {{min: 4, max: 2}}\n", "j, line 6: spec.workers: min 4 is more than max 2;"),
    (f"{SPEC}  workers: {{min: 2, max: 3, request: 9}}\n", "request 9 is not between min 2 and max 3"),
    (f"{SPEC}  workers: 0\n", "j, line 6: spec.workers.min: expected at least 1, found '0'."),
    (f"{SPEC}  workers: many\n", "expected a number of workers, or the fewest and the most such as 1:4"),
    (f"{SPEC}  workers: {{min: x}}\n", "spec.workers.min: expected a whole number, found 'x'."),
    (f"{SPEC}  resources: {{cpu: lots}}\n", "spec.resources.cpu: expected a number such as 2, 0.5 or 500m"),
    (f"{SPEC}  resources: {{memory: 3Zi}}\n", "spec.resources.memory: expected memory such as 8Gi"),
    (f"{SPEC}  resources: {{cpu: true}}\n", "found 'true'"),
    (f"{SPEC}  resources: {{cpu: 1e9}}\n", "expected at most 1,000,000"),
    (f"{SPEC}  grace: 5 parsecs\n", "spec.grace: expected seconds, or a time such as 30s, 5m or 2h"),
    (f"{SPEC}  restartPolicy: Sometimes\n", "expected one of Never, OnFailure or ExitCode, found 'Sometimes'"),
    (f"{SPEC}  progress: {{stdout: 'loss('}}\n", "expected a regular expression with named groups"),
    (f"{SPEC}  progress: {{stdout: 'loss'}}\n", "expected a regular expression with named groups"),
    (f"{SPEC}  env: [1]\n", "expected variables such as {LR: 0.1}"),
    (f"{SPEC}  env: {{A: [1]}}\n", "spec.env.A: expected text, found a list."),
    (f"{HEAD}spec:\n  command: []\n", "spec.command: expected a list that is not empty"),
    (f"{HEAD}spec:\n  command: [python, true]\n", "spec.command[1]: expected text; put quotes around it, found 'true'"),
    (f"{HEAD}spec:\n  command: 'x \"y'\n", "expected a command whose quotes are closed"),
    (f"{SPEC}  command: [x]\n", "j, line 6, column 3: this is not YAML (the key 'command' appears twice)"),
    (SPEC.replace("name: a", "name: ../x"), "metadata.name: expected a name of at most 63 small letters"),
    (SPEC.replace("name: a", f"name: {'a' * 64}"), "metadata.name: expected a name"),
    (SPEC.replace("name: a", "name: 12"), "expected a name, as text; put quotes around it, found '12'"),
    (SPEC.replace("v1alpha1", "v9"), "apiVersion: expected one of sterna.dev/v1alpha1, found 'sterna.dev/v9'"),
    (SPEC.replace("kind: TrainingJob", "kind: TrainingJb"), "the kind 'TrainingJb' cannot be run; did you mean"),
    ("apiVersion: v1\n", "'kind' is missing; write one of: TrainingJob, MPIJob, Pod, PyTorchJob, TFJob."),
    ("just text\n", "found 'just text', expected a manifest"),
    ("- 1\n", "found '1', expected a manifest"),
    ("", "found nothing, expected one or more manifests"),
    ("a: [", "this is not YAML"),
    ("a: &a [*a]\n", "nested too deeply"),
    (f"{SPEC}---\n{SPEC}", "j, line 9: a job named 'a' comes twice"),
    (TF_JOB.replace("min-instances: 1", "min-instances: 9"), "min-instances 9 is more than max-instances 4"),
    (TF_JOB.replace("min-instances: 1", "min-instances: 0"), "spec.min-instances: expected at least 1, found '0'"),
    (TF_JOB.replace("  min-instances: 1\n", ""), "min-instances is missing; give both bounds or neither"),
    (TF_JOB.replace("name: tensorflow", "name: tf"), "PS has no container named 'tensorflow'"),
    (TF_JOB.replace("image: registry.example/tf:1", 'image: ""'), "expected the name of an image"),
    (TF_JOB.replace('"0.2505"', '"2"'), "kubeshare/gpu_request is '2'; write a share of one GPU from 0 to 1"),
    (TF_JOB.replace("    PS:", "    Ps2:"), "spec.tfReplicaSpecs has no replica type 'Ps2'; did you mean 'ps'?"),
    (TF_JOB.replace('command: ["python", "ps.py"]', "command: []"), "PS has no command; images are not run here"),
    (
        MPI_JOB.replace('"1"}\n            - {name: MAX', '"9"}\n            - {name: MAX'),
        "MIN_NP 9 is more than its MAX_NP 4",
    ),
    (MPI_JOB.replace('value: "5"', 'value: "five"'), "The launcher's EPOCHS is 'five'; write a whole number"),
    (MPI_JOB.replace("    Launcher:", "    Worker:", 1), "appears twice"),
    (PYTORCH_JOB.replace("minReplicas: 1", "minReplicas: 5"), "minReplicas 5 is more than maxReplicas 3"),
    (POD.replace('command: ["python"]', "stdin: false"), "the first container has no command"),
    (
        POD.replace("restartPolicy: Never", "restartPolicy: Maybe"),
        "spec.restartPolicy is 'Maybe'; write one of Always, OnFailure, Never, ExitCode.",
    ),
    (POD.replace("spec:\n", "spec:\n  containrs: 1\n"), "spec has no field 'containrs'; did you mean 'containers'?"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_a_wrong_manifest_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        load(text, "j")
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message
    assert message.startswith("j")


def test_references_that_multiply_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(UserError, match="too many values"):
        load("\n".join(lines), "j")
