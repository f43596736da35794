"""Nodes, events, rules, metrics, the description of the API, and paths that are not there."""

from __future__ import annotations

import re

from sterna import __version__
from tests.fakes.http_server import Served


def test_nodes_are_listed_and_taken_out_of_use(api: Served) -> None:
    assert [node["name"] for node in api.ask("GET", "/api/v1/nodes").value] == ["node-0", "node-1"]
    assert api.ask("GET", "/api/v1/nodes/node-1").value["cpus"] == 2
    for verb, state in (("cordon", "cordoned"), ("drain", "draining"), ("uncordon", "ready")):
        assert api.ask("POST", f"/api/v1/nodes/node-1/{verb}").value["state"] == state
    assert api.ask("POST", "/api/v1/nodes/nope/cordon").status == 404
    assert api.ask("GET", "/api/v1/nodes/nope").status == 404
    assert api.ask("POST", "/api/v1/nodes/node-1/explode").status == 422


def test_events_are_returned_in_order_from_a_number_on(api: Served) -> None:
    api.create("a", "b")
    assert [event["job"] for event in api.ask("GET", "/api/v1/events").value] == ["a", "b"]
    assert [event["job"] for event in api.ask("GET", "/api/v1/events?after=1").value] == ["b"]
    assert [event["number"] for event in api.ask("GET", "/api/v1/events?job=b").value] == [2]
    assert api.ask("GET", "/api/v1/events?job=nope").status == 404
    assert api.ask("GET", "/api/v1/events?after=x").status == 422


def test_rules_are_seen_and_changed(api: Served) -> None:
    assert api.ask("GET", "/api/v1/rules").value["policy"] == "elastic-fifo"
    changed = api.ask("PATCH", "/api/v1/rules", {"policy": "srjf", "rate_limit_seconds": 30}).value
    assert (changed["policy"], changed["rate_limit_seconds"], changed["placement"]) == ("srjf", 30.0, "stay")
    assert api.ask("PATCH", "/api/v1/rules", {"policy": "nope"}).status == 422
    assert api.ask("PATCH", "/api/v1/rules", {}).status == 422
    assert api.ask("PATCH", "/api/v1/rules", {"polcy": "fifo"}).status == 422
    assert "elastic-tiresias" in api.ask("GET", "/api/v1/policies").text


def test_the_version_is_returned(api: Served) -> None:
    assert api.ask("GET", "/api/v1/version").value == {"version": __version__}


def test_metrics_are_in_prometheus_words(api: Served) -> None:
    api.create("a", "b")
    api.cluster.run("a", 5, 10)
    text = api.ask("GET", "/metrics").text
    for line in (
        'sterna_jobs{state="running"} 1.0',
        'sterna_jobs{state="waiting"} 1.0',
        'sterna_job_progress_ratio{job="a"} 0.5',
        'sterna_job_metric{job="a",metric="loss"} 0.25',
        'sterna_node_cpus_free{node="node-0"} 1.0',
        'sterna_events_total{kind="submitted"} 2.0',
    ):
        assert line in text
    api.cluster.record("It moved.", "moved", "a")
    text = api.ask("GET", "/metrics").text
    assert 'sterna_events_total{kind="moved"} 1.0' in text
    assert 'sterna_events_total{kind="submitted"} 2.0' in text


def test_every_reference_of_the_description_leads_somewhere(api: Served) -> None:
    reply = api.ask("GET", "/api/v1/openapi.json")
    known = reply.value["components"]["schemas"]
    referred = set(re.findall(r"#/components/schemas/(\w+)", reply.text))
    assert {"JobView", "NodeView", "TrainingJob"} <= referred
    assert sorted(referred - known.keys()) == []
    assert "/api/v1/jobs/{name}/migrate" in reply.value["paths"]


def test_a_path_that_is_not_there_is_not_found(api: Served) -> None:
    reply = api.ask("GET", "/api/v2/jobs")
    assert reply.status == 404
    assert "/api/v1/openapi.json" in reply.detail
    assert api.ask("PUT", "/api/v1/jobs").status == 405


def test_a_bug_is_answered_without_a_stack_trace(api: Served) -> None:
    def broken() -> None:
        raise ZeroDivisionError("secret")

    api.cluster.nodes = broken  # type: ignore[assignment, method-assign]
    reply = api.ask("GET", "/api/v1/nodes")
    assert reply.status == 500
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text


def test_the_page_is_for_browsers_and_needs_nothing_from_elsewhere(api: Served) -> None:
    reply = api.ask("GET", "/", Accept="text/html,*/*")
    assert reply.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    addresses = [address for address in re.findall(r"https?://[^\s\"']+", reply.text) if "w3.org" not in address]
    assert addresses == []
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"'](?!data:)", reply.text)
    assert "innerHTML" not in reply.text  # what comes from jobs is text
    assert "Training Service" in api.ask("GET", "/").text
