"""A kind in one file outside the package: jobs of it run on the local backend and through the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sterna.backends.kubernetes.api.rbac import Scope, Who, rules
from sterna.backends.kubernetes.cache.watched_resources import watched_resources
from sterna.errors import UserError
from sterna.kinds import registry
from sterna.kinds.loading import load
from sterna.kinds.resource import Resource
from tests.fakes.kube import RESOURCES, FakeKube
from tests.fakes.local_cluster import LocalRun, make
from tests.fakes.plugins import installed
from tests.simulation.kubernetes_runs import Cluster

__all__ = ["make"]

TOY_JOBS = Resource("toys.example", "v1", "toyjobs", "ToyJob")

SOURCE = """
from typing import Any

from sterna.kinds.kind import READ, Kind, Permission
from sterna.kinds.parsing.annotations import parse_annotations
from sterna.kinds.parsing.fields import FieldReader, Fields
from sterna.kinds.parsing.job_builder import JobParts, build_job, make_bounds
from sterna.kinds.parsing.pod_template import parse_template
from sterna.kinds.parsing.run_policy import RunPolicy
from sterna.kinds.registry import register
from sterna.kinds.resource import Resource
from sterna.model.job import RestartPolicy

TOY_JOBS = Resource("toys.example", "v1", "toyjobs", "ToyJob")


class Spec(Fields):
    template: dict[str, Any]
    players: int = 1


def parse(job, context):
    reader = FieldReader(context.runs_images)
    spec = reader.decode(job.spec, Spec, "spec")
    worker = parse_template(reader, "worker", "spec", spec.players, "", spec.template)
    parts = JobParts(
        groups=(worker,),
        scaled=worker,
        bounds=make_bounds(spec.players, None, None),
        policy=RunPolicy(),
        annotations=parse_annotations(job.metadata.annotations),
        default_restart=RestartPolicy.NEVER,
        notices=reader.notices,
    )
    return build_job(job.metadata, TOY_JOBS, parts, context)


def environment(spec, member, gang):
    return {"TOY_PLAYER": f"{member.number + 1} of {gang.size}", "TOY_TABLE": f"{gang.host}:{gang.port}"}


register(
    Kind(
        resource=TOY_JOBS,
        summary="a game for several players",
        parse=parse,
        permissions=(Permission((*READ, "patch", "delete"), "games"), Permission(("patch",), "results", "status")),
        environment=environment,
    )
)
"""

MANIFEST = """\
apiVersion: toys.example/v1
kind: ToyJob
metadata: {name: chess}
spec:
  players: 2
  template:
    metadata: {annotations: {fake/run-seconds: "20"}}
    spec: {containers: [{name: play, image: toys.example/chess, command: ["true"]}]}
"""


@pytest.fixture(autouse=True)
def toy_kind(tmp_path: Path) -> Iterator[None]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    with installed(folder, registry.ENTRY_POINTS, "sterna_toys", SOURCE):
        registry.discover()
        yield
        registry.unregister("ToyJob")


def test_job_of_an_outside_kind_runs_on_one_machine(make: Callable[..., LocalRun]) -> None:
    run = make(4)
    (spec,) = load(MANIFEST, "chess.yaml").jobs
    run.machine.work["chess"] = 10.0
    run.cluster.create([spec])
    run.settle()
    variables = [process.launch_spec.env for process in run.machine.processes.values()]
    assert sorted(each["TOY_PLAYER"] for each in variables) == ["1 of 2", "2 of 2"]
    assert all(each["TOY_TABLE"].startswith("127.0.0.1:") for each in variables)
    run.run_for()
    assert run.state("chess") == "completed"


def test_error_in_a_manifest_of_an_outside_kind_names_line_and_field() -> None:
    with pytest.raises(UserError, match=r"^chess\.yaml, line 5: spec has no field 'playrs'; did you mean 'players'\?$"):
        load(MANIFEST.replace("players", "playrs"), "chess.yaml")


def test_job_of_an_outside_kind_runs_through_the_operator() -> None:
    cluster = Cluster(kube=FakeKube(resources=(*RESOURCES, TOY_JOBS)))
    cluster.nodes.add("node-1", gpus=2)
    cluster.start()
    template = {
        "metadata": {"annotations": {"fake/run-seconds": "20"}},
        "spec": {"containers": [{"name": "play", "image": "toys.example/chess"}]},
    }
    cluster.kube.create(TOY_JOBS, {"metadata": {"name": "chess"}, "spec": {"players": 2, "template": template}})
    cluster.run(10.0)
    env = [{each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]} for pod in cluster.pods()]
    assert sorted(str(each["TOY_PLAYER"]) for each in env) == ["1 of 2", "2 of 2"]
    assert {each["TOY_TABLE"] for each in env} == {"chess-worker-0.default.svc:23456"}
    assert cluster.phases(TOY_JOBS) == {"chess": "Running"}
    cluster.run(60.0)
    assert cluster.phases(TOY_JOBS) == {"chess": "Succeeded"}


def test_operator_watches_an_outside_kind_and_asks_for_its_permissions() -> None:
    assert TOY_JOBS in [followed.resource for followed in watched_resources()]
    granted = {(rule.group, resource) for rule in rules(Who.OPERATOR, Scope.CLUSTER) for resource in rule.resources}
    assert {("toys.example", "toyjobs"), ("toys.example", "toyjobs/status")} <= granted
