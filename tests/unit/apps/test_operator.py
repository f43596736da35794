"""The operator as a process has it: real client, real threads, a server in memory behind loopback."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sterna.apps.operator import Operator, open_journal, rules_of
from sterna.apps.operator_server import format_address
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, LEASES
from sterna.backends.kubernetes.transport.kubeconfig import Access
from sterna.control.clock import steady_clock
from sterna.control.journal import read_rounds
from sterna.errors import UserError
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.settings import OperatorSettings
from tests.fakes.kube import RESOURCES, FakeKube
from tests.fakes.kube_http import HttpKube
from tests.fakes.kube_nodes import GPU, FakeNodes
from tests.fakes.kube_requests import Response
from tests.fakes.log import log_messages

PATIENCE_SECONDS = 30.0


class Site:
    """A cluster behind HTTP, with nodes, whose time passes when somebody waits for something."""

    def __init__(self, http: HttpKube, nodes: FakeNodes, messages: list[str]) -> None:
        self.http, self.nodes, self.messages = http, nodes, messages
        self._changed = threading.Event()
        http.kube.store.listeners.append(lambda resource, event: self._changed.set())

    def operator(self, **settings: object) -> Operator:
        chosen = {"listen": "127.0.0.1:0", "authenticate": False, "identity": "one", **settings}
        return Operator(OperatorSettings(**chosen), Access(self.http.server))  # type: ignore[arg-type]

    def until(self, fulfilled: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not fulfilled():
            assert time.monotonic() < end, f"{what} did not come: {self.messages}"
            self.http.do(lambda kube: kube.advance(0.1))
            self._changed.wait(0.05)
            self._changed.clear()

    def phase(self, name: str) -> str:
        status = self.http.do(lambda kube: kube.get(TRAINING_JOBS, name)).get("status") or {}
        return str(status.get("phase", ""))

    def submit(self, name: str, seconds: float = 1.0) -> None:
        container = {"name": "train", "image": "train", "resources": {"limits": {GPU: 1}}}
        meta = {"annotations": {"fake/run-seconds": str(seconds)}}
        spec = {"workers": 1, "template": {"metadata": meta, "spec": {"containers": [container]}}}
        self.http.do(lambda kube: kube.create(TRAINING_JOBS, {"metadata": {"name": name}, "spec": spec}))


@contextmanager
def a_site(kube: FakeKube | None = None) -> Iterator[Site]:
    kube = kube or FakeKube()
    nodes = FakeNodes(kube)
    nodes.add("node-0", gpus=4)
    with HttpKube(kube) as http, log_messages() as messages:
        yield Site(http, nodes, messages)


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site() as found:
        yield found


def test_an_operator_leads_runs_jobs_and_gives_the_lease_back(site: Site) -> None:
    """DRAGON-51."""
    with site.operator() as operator:
        site.submit("job")
        site.until(lambda: site.phase("job") == "Succeeded", "the end of the job")
        lease = site.http.do(lambda kube: kube.get(LEASES, "sterna-operator"))
        assert lease["spec"]["holderIdentity"] == "one"
        assert lease["metadata"]["annotations"]["sterna.dev/address"] == operator.http.address
    lease = site.http.do(lambda kube: kube.get(LEASES, "sterna-operator"))
    assert not lease["spec"].get("holderIdentity")
    assert site.messages[0] == "Sterna leads as one with 1 nodes."


def test_metrics_count_each_job_once(site: Site) -> None:
    """DRAGON-52."""
    with site.operator(leader_election=False) as operator:
        site.until(lambda: operator.backend.is_ready, "the lead")
        for name in ("a", "b"):
            site.submit(name)
        site.until(lambda: site.phase("a") == site.phase("b") == "Succeeded", "the end of the jobs")
        url = f"http://{operator.http.address}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
    assert "tf_operator_jobs_successful_total 2.0" in text
    assert "tf_operator_jobs_created_total 2.0" in text
    assert "tf_operator_is_leader 1.0" in text
    assert 'sterna_node_devices{node="node-0"} 4.0' in text


def test_operator_that_lost_its_lease_ends(site: Site) -> None:
    with site.operator() as operator:
        site.until(lambda: operator.backend.is_ready, "the lead")
        other = {"spec": {"holderIdentity": "two", "leaseDurationSeconds": 15}}
        site.http.do(lambda kube: kube.patch(LEASES, "sterna-operator", other))
        operator.wait()
    assert "The Lease is lost" in site.messages[-1]


def test_a_replica_that_stands_by_sends_callers_on_to_the_one_that_leads(site: Site) -> None:
    with site.operator(identity="one") as one:
        site.until(lambda: any("leads as one" in each for each in site.messages), "the leader")
        with site.operator(identity="two") as two:
            site.until(lambda: two.leader_address(), "a look at the Lease")
            url, opener = f"http://{two.http.address}/cluster-info", urllib.request.build_opener(Unmoved)
            with pytest.raises(urllib.error.HTTPError) as refused:
                opener.open(url, timeout=PATIENCE_SECONDS)
    assert refused.value.code == 307
    assert refused.value.headers["Location"] == f"http://{one.http.address}/cluster-info"
    refused.value.close()


class Unmoved(urllib.request.HTTPRedirectHandler):
    """Shows where it was sent to, and does not go there."""

    def redirect_request(self, *_: object) -> None:
        return None


@pytest.mark.parametrize(
    ("ip", "address"), [("", "127.0.0.1:1"), ("10.0.0.7", "10.0.0.7:1"), ("fd00::7", "[fd00::7]:1")]
)
def test_others_find_the_service_whatever_kind_of_address_its_pod_has(ip: str, address: str) -> None:
    assert format_address(ip, 1) == address


def test_operator_starts_with_the_learned_curves_of_its_predecessor(site: Site) -> None:
    with site.operator() as first:
        site.until(lambda: any("leads as one" in each for each in site.messages), "the leader")
        with first.backend.lock:
            first.backend.state.progress.learned_curves.add_steps("resnet", 1, 100.0, 250.0)
    site.http.do(lambda kube: kube.get(CONFIG_MAPS, "sterna-learned-curves"))
    site.messages.clear()
    with site.operator() as second:
        site.until(lambda: any("leads as one" in each for each in site.messages), "the next leader")
        assert second.backend.state.progress.learned_curves.step_seconds("resnet") == pytest.approx(2.5, rel=0.1)


def test_unknown_resource_is_logged_once() -> None:
    with a_site(FakeKube(resources=[each for each in RESOURCES if each != MPI_JOBS])) as site:
        with site.operator(leader_election=False):
            site.submit("job")
            site.until(lambda: site.phase("job") == "Succeeded", "the end of the job")
        told = [sentence for sentence in site.messages if "mpijobs" in sentence]
        assert len(told) == 1
        assert "install its definition" in told[0]


def get(operator: Operator, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{operator.http.address}{path}", timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_readyz_fails_until_the_cluster_is_read_and_then_names_the_leader(site: Site) -> None:
    site.http.do(lambda kube: setattr(kube.rest, "forbidden", lambda seen: seen.plural == "nodes"))
    site.http.answer_instead = lambda method, path: Response(503, b"{}") if path.endswith("/nodes") else None
    with site.operator(identity="one") as one:
        status, sentence = get(one, "/readyz")
        assert (status, sentence) == (503, "The cluster has not been read yet.")
        site.http.do(lambda kube: setattr(kube.rest, "forbidden", lambda seen: False))
        site.http.answer_instead = lambda method, path: None
        site.until(lambda: get(one, "/readyz")[1] == "ok: one leads", "the leader")
        with site.operator(identity="two") as two:
            site.until(lambda: get(two, "/readyz")[0] == 200, "the other replica")
            assert get(two, "/readyz")[1] == "ok: two stands by; one holds the Lease"


def test_hung_loop_fails_healthz_and_loses_the_lease(site: Site) -> None:
    seconds = [0.0]
    with site.operator() as operator:
        operator.watchdog.__init__(120.0, lambda: seconds[0])  # type: ignore[misc]
        site.until(operator.is_leading, "the lead")
        assert get(operator, "/healthz") == (200, "ok")
        with operator.backend.lock:  # the loop cannot go on
            seconds[0] = 121.0
            sentence = "The scheduling loop has not finished a round for 121 s."
            assert get(operator, "/healthz") == (503, sentence)
            operator.wait()
            assert not operator.is_leading()
    assert any("The Lease is lost" in each for each in site.messages)


def test_rounds_are_kept_in_a_journal_and_a_second_operator_begins_another(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with site.operator(leader_election=False, journal=str(path)):
        site.submit("job")
        site.until(lambda: site.phase("job") == "Succeeded", "the end of the job")
    rounds = list(read_rounds(path))
    assert any(action.kind.name == "START" for each in rounds for action in each.actions)
    site.messages.clear()
    second = open_journal(OperatorSettings(journal=str(path)))
    assert second is not None
    with second:
        assert site.messages == [f"'{path}' is another operator's journal; this one's is '{path}.2'."]


def test_a_placement_that_only_counts_is_refused() -> None:
    with pytest.raises(UserError, match="finds nodes"):
        rules_of(OperatorSettings(placement="none"))


def test_the_operators_time_goes_on_whatever_is_done_to_the_machines_clock() -> None:
    """An hour forward by mistake must not end every job with a deadline; an hour back must not stop rounds."""
    wall, steady = [1000.0], [0.0]
    clock = steady_clock(lambda: wall[0], lambda: steady[0])
    assert clock() == 1000.0
    wall[0], steady[0] = 4610.0, 10.0
    assert clock() == pytest.approx(1015.0)
    wall[0], steady[0] = 1020.0, 20.0
    assert clock() == pytest.approx(1020.0)
    wall[0], steady[0] = 500.0, 30.0
    assert clock() == pytest.approx(1025.0)
