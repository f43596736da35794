"""Real training on a local cluster: moves, resizes, preemption and restarts lose no work."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sterna.apps.daemon import Daemon, Options
from sterna.backends.local.cluster import LocalCluster
from sterna.backends.local.jobs.exits import RestartBackoff
from sterna.backends.local.kernel.proc_table import process
from sterna.errors import UserError
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec, Resizing
from tests.e2e.replicas import Replicas, until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAIN, ELASTIC = str(EXAMPLES / "numpy_train.py"), str(EXAMPLES / "numpy_elastic.py")

Up = Callable[..., LocalCluster]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Start daemons in this process, one after the other, on one state folder; ends all processes after the test."""
    daemons: list[Daemon] = []

    def start(nodes: str = "2x1cpu", shared: bool = False, **rules: str) -> LocalCluster:
        if daemons:
            daemons.pop().stop()
        options = Options(
            tmp_path, nodes, shared, tuple(rules.items()), backoff=RestartBackoff(0.1, 1.0), has_api=False
        )
        daemon = Daemon(options)
        daemon.start()
        daemons.append(daemon)
        return daemon.cluster

    yield start
    cluster = daemons[-1].cluster
    cluster.delete([view.name for view in cluster.jobs()])
    until(lambda: not cluster.jobs())
    daemons[-1].stop()
    replicas = Replicas(tmp_path)
    replicas.launcher.retire()
    until(lambda: not replicas.leftovers())


def a_job(
    name: str, *command: str, size: tuple[int, int] = (1, 1), kind: str = "TrainingJob", **more: object
) -> JobSpec:
    replica = ReplicaSpec("worker", size[0], (sys.executable, *command), working_dir="/")
    spec = JobSpec(name, kind, (replica,), *size, size[0], grace_seconds=10.0)
    return replace(spec, **more)  # type: ignore[arg-type]


def training(name: str, steps: int, *more: str, **spec: object) -> JobSpec:
    return a_job(name, TRAIN, "--steps", str(steps), "--print-every", "200", *more, **spec)  # type: ignore[arg-type]


def steps_of(cluster: LocalCluster, name: str) -> list[int]:
    return [report.step for report in cluster.history(name) if report.step is not None]


def test_moves_in_place_and_by_checkpoint_lose_no_step(up: Up) -> None:
    cluster = up()
    cluster.create([training("t", 1500, "--pad-seconds", "0.002")])
    until(lambda: (cluster.job("t").step or 0) > 50)
    first = cluster.job("t")
    other = next(node.name for node in cluster.nodes() if node.name not in first.nodes)
    cluster.migrate("t", other)
    until(lambda: cluster.job("t").nodes == [other])
    assert cluster.job("t").replicas[0].pid == first.replicas[0].pid
    cluster.migrate("t", first.nodes[0], by_checkpoint=True)
    until(lambda: cluster.job("t").attempt == 2 and cluster.job("t").nodes == first.nodes)
    until(lambda: cluster.job("t").state == "completed")
    view = cluster.job("t")
    assert (view.step, view.total, view.moves, view.lost_seconds, view.exit_code) == (1500, 1500, 2, 0.0, 0)
    assert steps_of(cluster, "t") == sorted(steps_of(cluster, "t"))
    kinds = [event.kind for event in cluster.events("t")]
    assert kinds.count("started") == 2
    assert {"moved", "saved", "completed"} <= set(kinds)


def test_moved_process_runs_on_the_cores_of_its_new_node(up: Up) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: every node has the same")
    cluster = up()
    cluster.create([a_job("s", "-c", "import time; time.sleep(60)")])
    until(lambda: cluster.job("s").replicas != [] and cluster.job("s").replicas[0].pid > 0)
    pid = cluster.job("s").replicas[0].pid
    before = os.sched_getaffinity(pid)
    source = cluster.job("s").nodes[0]
    cluster.migrate("s", "node1" if source == "node0" else "node0")
    until(lambda: os.sched_getaffinity(pid) != before)
    assert len(before) == len(os.sched_getaffinity(pid)) == 1


def test_elastic_job_grows_and_shrinks_while_it_runs(up: Up) -> None:
    cluster = up()
    elastic = a_job("e", ELASTIC, "--steps", "900", "--pad-seconds", "0.004", size=(1, 2), resizing=Resizing.IN_PLACE)
    cluster.create([elastic])
    until(lambda: cluster.job("e").workers == 2 and (cluster.job("e").step or 0) > 20)
    cluster.scale("e", 1, 1)  # its owner decides: whether a change pays depends on the load of this machine
    until(lambda: cluster.job("e").workers == 1)
    cluster.create([a_job("guest", "-c", "pass")])
    until(lambda: cluster.job("guest").state == "completed")
    cluster.scale("e", 2, 2)
    until(lambda: cluster.job("e").workers == 2)
    until(lambda: cluster.job("e").state == "completed")
    view = cluster.job("e")
    assert (view.attempt, view.restarts, view.lost_seconds, view.step) == (1, 0, 0.0, 900)


def test_preempted_job_saves_and_resumes(up: Up) -> None:
    cluster = up("1x1cpu", policy="fifo")
    cluster.create([training("low", 800, "--pad-seconds", "0.002", priority=-1)])
    until(lambda: (cluster.job("low").step or 0) > 50)
    cluster.create([a_job("high", "-c", "import time; time.sleep(0.3)")])
    until(lambda: cluster.job("high").state == "running")
    assert cluster.job("low").state == "waiting"
    at_stop = cluster.job("low").step or 0
    until(lambda: cluster.job("low").state == "completed")
    view = cluster.job("low")
    assert (view.attempt, view.lost_seconds, view.restarts, view.step) == (2, 0.0, 0, 800)
    second = [report.step or 0 for report in cluster.history("low") if report.attempt == 2]
    assert min(second) > at_stop - 1


def test_process_is_killed_after_its_grace_period_and_its_work_is_lost(up: Up) -> None:
    cluster = up()
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here'); time.sleep(60)"
    cluster.create([a_job("deaf", "-c", deaf, grace_seconds=0.3)])
    until(lambda: cluster.job("deaf").state == "running" and b"here" in cluster.log("deaf")[0])
    other = "node1" if cluster.job("deaf").nodes == ["node0"] else "node0"
    cluster.migrate("deaf", other, by_checkpoint=True)
    until(lambda: cluster.job("deaf").attempt == 2)
    assert cluster.job("deaf").lost_seconds > 0.2


def test_restarted_daemon_follows_running_jobs(up: Up) -> None:
    cluster = up()
    cluster.create([training("t", 1200, "--pad-seconds", "0.002")])
    until(lambda: (cluster.job("t").step or 0) > 100)
    pid, step = cluster.job("t").replicas[0].pid, cluster.job("t").step or 0
    cluster = up()
    view = cluster.job("t")
    assert (view.state, view.attempt, view.replicas[0].pid) == ("running", 1, pid)
    until(lambda: (cluster.job("t").step or 0) > step)
    until(lambda: cluster.job("t").state == "completed")
    assert steps_of(cluster, "t") == sorted(set(steps_of(cluster, "t")))


def test_progress_is_parsed_from_the_output(up: Up) -> None:
    cluster = up()
    lines = "for step in range(1, 41): print(f'step={step}/40 loss={1/step:.4f}'); import time; time.sleep(0.01)"
    cluster.create([a_job("p", "-c", lines, progress=ProgressSpec())])
    until(lambda: cluster.job("p").state == "completed")
    view = cluster.job("p")
    assert (view.step, view.total, view.metric) == (40, 40, "loss")
    assert view.value == pytest.approx(1 / 40, abs=1e-3)


def test_tfjob_gets_tf_config_and_its_parameter_servers_stop_at_the_end(up: Up, tmp_path: Path) -> None:
    cluster = up("1x2cpu")
    tell = "import os, sys; open(sys.argv[1] + os.environ['STERNA_TYPE'], 'w').write(os.environ['TF_CONFIG'])"
    worker = ReplicaSpec("worker", 1, (sys.executable, "-c", tell, f"{tmp_path}/"), working_dir="/")
    serve = f"{tell}; import time; time.sleep(60)"
    ps = ReplicaSpec("ps", 1, (sys.executable, "-c", serve, f"{tmp_path}/"), working_dir="/")
    cluster.create([JobSpec("tf", "TFJob", (ps, worker), 1, 1, 1, grace_seconds=5.0)])
    until(lambda: cluster.job("tf").state == "completed")
    config = json.loads((tmp_path / "worker").read_text())
    assert config["task"] == {"type": "worker", "index": 0}
    assert sorted(config["cluster"]) == ["ps", "worker"]
    assert [replica.state for replica in cluster.job("tf").replicas] == ["ended", "ended"]


def test_mpi_job_runs_its_launcher_with_a_hostfile(up: Up, tmp_path: Path) -> None:
    cluster = up("2x1cpu")
    tell = "import os; print(open(os.environ['OMPI_MCA_orte_default_hostfile']).read(), os.environ['STERNA_SIZE'])"
    launcher = ReplicaSpec("launcher", 1, (sys.executable, "-c", tell), working_dir="/")
    workers = ReplicaSpec("worker", 2, ())
    cluster.create([JobSpec("mpi", "MPIJob", (launcher, workers), 2, 2, 2)])
    until(lambda: cluster.job("mpi").state == "completed")
    assert cluster.log("mpi")[0].split() == [b"localhost", b"slots=2", b"2"]
    assert [replica.name for replica in cluster.job("mpi").replicas] == ["launcher-0"]


def test_cpu_shares_divide_a_shared_core(up: Up) -> None:
    cluster = up("1x1cpu", shared=True, cpu_share="equal", migration="none")
    if "weight" not in cluster.nodes()[0].control:
        pytest.skip("no control group divides the CPU here")
    burn = "while True: pass"
    cluster.create([a_job("much", "-c", burn), a_job("little", "-c", burn)])
    until(lambda: all(view.state == "running" and view.cpu_seconds > 0.05 for view in cluster.jobs()))
    backend = cluster._backend
    with backend.store.lock:
        backend.store.find("much").record.cpu_share, backend.store.find("little").record.cpu_share = 1.9, 0.1
    # Reconciled directly: a round would restore equal shares.
    backend.attempts.reconcile()
    before = _cpu_seconds(cluster)
    until(lambda: sum(_cpu_seconds(cluster)) - sum(before) > 1.0)
    much, little = (now - then for now, then in zip(_cpu_seconds(cluster), before, strict=True))
    assert much > 4 * little


def _cpu_seconds(cluster: LocalCluster) -> Sequence[float]:
    return [cluster.job(name).cpu_seconds for name in ("much", "little")]


def test_program_that_cannot_start_fails_with_the_reason(up: Up, tmp_path: Path) -> None:
    cluster = up()
    script = tmp_path / "broken"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    replica = ReplicaSpec("worker", 1, (str(script),), working_dir="/")
    cluster.create([JobSpec("b", "TrainingJob", (replica,), 1, 1, 1, backoff_limit=0)])
    until(lambda: cluster.job("b").state == "failed")
    assert any("could not be started" in event.sentence for event in cluster.events("b"))


def test_second_daemon_on_one_state_folder_raises_a_user_error(up: Up, tmp_path: Path) -> None:
    up()
    with pytest.raises(UserError, match=r"A daemon runs on .* already"):
        Daemon(Options(tmp_path, has_api=False))


def test_deleted_job_leaves_no_process_and_no_folder(up: Up, tmp_path: Path) -> None:
    cluster = up()
    cluster.create([a_job("d", "-c", "import time; time.sleep(60)", grace_seconds=1.0)])
    until(lambda: cluster.job("d").replicas != [] and cluster.job("d").replicas[0].pid > 0)
    pid = cluster.job("d").replicas[0].pid
    cluster.delete(["d"])
    until(lambda: not cluster.jobs())
    found = process(pid)
    assert found is None or found.is_gone
    until(lambda: not (tmp_path / "jobs" / "d").exists())
