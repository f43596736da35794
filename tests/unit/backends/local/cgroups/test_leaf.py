"""Leaf groups of replicas below the control group of their job."""

from __future__ import annotations

from pathlib import Path

from sterna.backends.local.cgroups.leaf import groups_to_enter, leaf_name, leaves, pins_cores


def test_leaf_is_found_below_the_current_node_of_its_job(tmp_path: Path) -> None:
    for node in ("node-0", "node-1"):
        (tmp_path / node / "job").mkdir(parents=True)
        (tmp_path / node / "job" / "cgroup.kill").touch()
    folder = "/state/jobs/job/2/worker-3"
    groups = (str(tmp_path / "node-0" / "job"), "/elsewhere")
    entered = groups_to_enter(groups, folder)
    assert entered == (str(tmp_path / "node-0" / "job" / leaf_name(folder)), "/elsewhere")
    moved = tmp_path / "node-1" / "job" / leaf_name(folder)
    moved.mkdir()
    (moved / "cgroup.procs").touch()
    assert leaves(groups, folder) == (str(moved),)


def test_cores_are_pinned_where_a_cpuset_exists(tmp_path: Path) -> None:
    assert not pins_cores([str(tmp_path / "node" / "job")])
    (tmp_path / "node" / "job").mkdir(parents=True)
    (tmp_path / "node" / "cpuset.cpus").touch()
    assert pins_cores([str(tmp_path / "node" / "job")])
