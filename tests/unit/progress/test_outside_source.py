"""A progress source in one file outside the package: a job declares it, and its progress is read through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.monitor.pods import NodePod, progress_of
from sterna.backends.kubernetes.pods.pod_builder import pod_of
from sterna.errors import UserError
from sterna.kinds.loading import load
from sterna.model.job import ProgressSpec
from sterna.progress import registry
from tests.fakes.local_cluster import LocalRun, make
from tests.fakes.plugins import installed
from tests.unit.kinds.kind_builders import parsed_job, tf_job, training_job

__all__ = ["make"]

SOURCE = '''
from sterna.progress.registry import register
from sterna.progress.report import SourceReport
from sterna.progress.source_kind import SourceKind, parse_path


class Tally:
    """One stroke for each step."""

    def __init__(self, files):
        self._files, self._seen = files, 0

    def poll(self, is_last):
        strokes = self._files.path.read_text().count("|") if self._files.path.exists() else 0
        if strokes == self._seen:
            return []
        self._seen = strokes
        return [SourceReport(self._files.clock(), strokes, None, {}, source="tally")]

    def positions(self):
        return {}

    def close(self):
        pass


register(
    SourceKind(
        name="tally",
        summary="strokes in a file",
        parse=parse_path,
        open=lambda path, files: Tally(files),
        path=lambda path: path,
    )
)
'''

MANIFEST = """\
apiVersion: sterna.dev/v1alpha1
kind: TrainingJob
metadata: {name: slow}
spec:
  command: "true"
  workingDir: FOLDER
  progress: {tally: strokes.txt, total: 8}
"""


@pytest.fixture(autouse=True)
def toy_source(tmp_path: Path) -> Iterator[None]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    with installed(folder, registry.ENTRY_POINTS, "sterna_tally", SOURCE):
        registry.discover()
        yield
        registry.unregister("tally")


def test_progress_of_a_job_is_read_through_an_outside_source(make: Callable[..., LocalRun], tmp_path: Path) -> None:
    run = make(4)
    (spec,) = load(MANIFEST.replace("FOLDER", str(tmp_path)), "slow.yaml").jobs
    run.machine.work["slow"] = 100.0
    run.cluster.create([spec])
    run.settle()
    (tmp_path / "strokes.txt").write_text("|||", encoding="ascii")
    run.run_for(30.0, until=lambda: run.cluster.job("slow").step == 3)
    assert (run.cluster.job("slow").step, run.cluster.job("slow").total) == (3, 8)


@pytest.mark.parametrize(
    "manifest",
    [
        training_job(progress={"tally": "/data/strokes.txt"}),
        tf_job(annotations={"sterna.dev/tally": "/data/strokes.txt"}),
    ],
    ids=lambda manifest: manifest["kind"],
)
def test_declared_outside_source_reaches_the_node_monitor(manifest: dict[str, object]) -> None:
    job = parsed_job(manifest)
    replica = ReplicaAssignment("worker", 0, "node-1")
    pod = msgspec.json.decode(msgspec.json.encode(pod_of(job, replica, [replica], 1)), type=NodePod)
    assert progress_of(pod) == ProgressSpec({"tally": "/data/strokes.txt"})


def test_parameters_are_checked_by_the_source() -> None:
    with pytest.raises(UserError, match=r"line 7: spec\.progress\.tally: expected a path, as text, found '3'\."):
        load(MANIFEST.replace("strokes.txt", "3"), "slow.yaml")
