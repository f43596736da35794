"""Daemon and operator serve the same REST API. Real servers, the API server in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sterna.service.views import Explanation, JobView, NodeView
from tests.fakes.http_server import served
from tests.fakes.kube_requests import Response
from tests.unit.apps.test_operator import Site, site  # noqa: F401 - a fixture
from tests.unit.apps.test_operator_server import get

TOKEN = "token-of-ann"


def review_tokens(site: Site) -> None:  # noqa: F811
    review = Response(201, b'{"status": {"authenticated": true, "user": {"username": "ann"}}}')
    site.http.answer_instead = lambda method, path: review if path.endswith("/tokenreviews") else None


def test_operator_api_returns_jobs_nodes_and_explanations(site: Site) -> None:  # noqa: F811
    review_tokens(site)
    with site.operator(leader_election=False) as operator:
        site.until(operator.is_leading, "the lead")
        site.submit("job", seconds=1000.0)
        site.until(lambda: site.phase("job") == "Running", "the job")
        url = f"http://{operator.http.address}/api/v1"
        jobs = msgspec.convert(get(f"{url}/jobs", TOKEN)[1], list[JobView])
        assert [(job.name, job.namespace, job.state) for job in jobs] == [("default/job", "default", "running")]
        nodes = msgspec.convert(get(f"{url}/nodes", TOKEN)[1], list[NodeView])
        assert [(node.name, node.state) for node in nodes] == [("node-0", "ready")]
        for name in ("job", "default/job"):
            explanation = msgspec.convert(get(f"{url}/jobs/{name}/explain", TOKEN)[1], Explanation)
            assert (explanation.state, explanation.events[-1].event) == ("runs", "runs")
        status, problem = get(f"{url}/jobs/jub", TOKEN)
        assert (status, problem["status"]) == (404, 404)
        assert "did you mean 'job'" in problem["detail"]


def test_openapi_documents_of_daemon_and_operator_are_equal(site: Site, tmp_path: Path) -> None:  # noqa: F811
    review_tokens(site)
    with served(tmp_path) as daemon, site.operator(leader_election=False) as operator:
        of_daemon = daemon.ask("GET", "/api/v1/openapi.json").value
        status, of_operator = get(f"http://{operator.http.address}/api/v1/openapi.json", TOKEN)
    assert status == 200
    assert without_title(of_operator) == without_title(of_daemon)
    assert len(of_daemon["paths"]) > 20


def without_title(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"info": {**document["info"], "title": ""}}
