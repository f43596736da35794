"""`plan`: what a described cluster is given, and which descriptions are refused."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.errors import UserError
from sterna.planning import plan, rules

INCEPTION = [1, 1.842, 2.692, 3.5]
RESNET = [1, 1.857, 2.6, 3.25]
VGG = [1, 1.785, 2.5, 3.125]
TRANSFORMER = [1, 1.657, 2.148, 2.521]

Job = dict[str, Any]


def a_job(name: str, low: int = 1, high: int | None = None, **more: Any) -> Job:
    return {"name": name, "min": low, "max": high or low, **more}


def a_cluster(gpus: int, *jobs: Job, **more: Any) -> dict[str, Any]:
    """One node, jobs submitted in the order in which they are listed."""
    listed = [{"submit": number, **job} for number, job in enumerate(jobs)]
    return {"now": 1000, "nodes": [{"name": "n1", "gpus": gpus}], "jobs": listed, **more}


def allocation(policy: str, gpus: int, *jobs: Job) -> list[int]:
    answer: Any = plan(a_cluster(gpus, *jobs), policy)
    return [answer["allocation"][job["name"]] for job in jobs]


def five(**more: Any) -> list[Job]:
    curves = (INCEPTION, RESNET, INCEPTION, VGG, VGG)
    return [a_job(f"j{number}", 1, 4, speedup=curve, **more) for number, curve in enumerate(curves)]


def three() -> list[Job]:
    curves = {"inc": INCEPTION, "vgg": VGG, "tr": TRANSFORMER}
    return [a_job(name, 1, 4, speedup=curve) for name, curve in curves.items()]


def pending(count: int) -> list[Job]:
    runs = a_job("r", 1, 8, workers=4, priority=-1, running={"n1": 4}, first_start=1)
    return [runs, *(a_job(f"p{number:02}", 1, 8, workers=4, priority=-1) for number in range(count))]


def remaining(jobs: list[Job], *seconds: float) -> list[Job]:
    return [job | {"remaining": left} for job, left in zip(jobs, seconds, strict=True)]


VECTORS: list[tuple[str, str, int, list[Job], list[int]]] = [
    ("V1", "FIFO", 6, [a_job("big", 8), a_job("s", 2)], [0, 2]),
    ("V2", "ElasticFIFO", 12, [a_job(name, 1, 4) for name in "abcde"], [3, 3, 2, 2, 2]),
    ("V3", "ElasticFIFO", 4, [a_job("a", 1, 4), a_job("b", 4)], [4, 0]),
    ("V4", "ElasticFIFO", 10, [a_job("a", 2, 3), a_job("b", 1, 8), a_job("c", 1)], [3, 6, 1]),
    ("V5", "ElasticSRJF", 6, [a_job("a", 2, remaining=1), a_job("b", 1, 4, remaining=2)], [2, 4]),
    (
        "V5b",
        "ElasticSRJF",
        8,
        [a_job("a", 1, 4, remaining=100), a_job("b", 1, 4, remaining=10), a_job("c", 1, 2, remaining=50)],
        [3, 3, 2],
    ),
    ("V6", "ElasticTiresias", 12, five(workers=2), [3, 2, 3, 2, 2]),
    (
        "V7",
        "Tiresias",
        8,
        [
            {"name": "a", "workers": 4, "priority": -1, "first_start": 5},
            {"name": "b", "workers": 4, "priority": 0, "first_start": 9},
            {"name": "c", "workers": 2, "priority": 0},
        ],
        [0, 4, 2],
    ),
    (
        "V8",
        "Tiresias",
        6,
        [
            {"name": "run0", "workers": 4, "priority": 0, "first_start": 100},
            {"name": "run1", "workers": 2, "priority": -1, "first_start": 50},
            {"name": "new", "workers": 4, "priority": 0},
        ],
        [4, 2, 0],
    ),
    ("V9", "ElasticTiresias", 7, [a_job("a", 4, 8, workers=4)], [7]),
    ("V10", "ElasticTiresias", 4, pending(10), [4] + [0] * 10),
    ("V11", "ElasticTiresias", 4, pending(11), [1, 1, 1, 1] + [0] * 8),
    ("V12", "FfDLOptimizer", 8, [a_job(name, 1, 8) for name in "abc"], [6, 1, 1]),
    ("V13", "FfDLOptimizer", 3, [a_job(name, 1, 4) for name in "abcde"], [1, 1, 1, 0, 0]),
    ("V14", "FfDLOptimizer", 4, [a_job("a", 2, 4), a_job("b", 2, 4)], [2, 2]),
    ("V15", "FfDLOptimizer", 12, five(), [4, 2, 4, 1, 1]),
    ("V16", "AFS-L", 8, [a_job("s", 1, 8, remaining=10), a_job("l", 1, 8, remaining=100)], [5, 3]),
    ("V17", "AFS-L", 12, remaining(five(), 900, 700, 950, 400, 450), [2, 2, 2, 3, 3]),
    (
        "V18",
        "AFS-L",
        8,
        remaining(three(), 3000, 1000, 2000),
        [3, 3, 2],
    ),
    (
        "V18-two",
        "AFS-L",
        2,
        remaining(three(), 3000, 1000, 2000),
        [0, 1, 1],
    ),
    ("V19", "AFS-L", 3, [a_job("a", 2, 4, remaining=5), a_job("b", 2, 4, remaining=6)], [3, 0]),
    ("V20", "AFS-L", 1, [a_job("x", remaining=7), a_job("y", remaining=7)], [1, 0]),
]


@pytest.mark.parametrize(("policy", "gpus", "jobs", "expected"), [v[1:] for v in VECTORS], ids=[v[0] for v in VECTORS])
def test_golden_vectors_come_out_of_a_plan(policy: str, gpus: int, jobs: list[Job], expected: list[int]) -> None:
    assert allocation(policy, gpus, *jobs) == expected


def test_a_plan_says_where_parameter_servers_go() -> None:
    description = {
        "nodes": [{"name": "n1", "gpus": 2, "cpus": 4}, {"name": "n2", "gpus": 2, "cpus": 4}],
        "jobs": [
            a_job("new", 2, submit=1, ps={"replicas": 2, "cpus": 1}),
            a_job("old", 1, running={"n2": 1}, ps={"replicas": 1, "cpus": 1}),
            a_job("plain", 1, submit=2),
        ],
    }
    answer: Any = plan(description, "fifo")
    assert answer["allocation"] == {"old": 1, "new": 2, "plain": 1}
    assert answer["parameter_servers"] == {"old": {"n2": 1}, "new": {"n1": 2}}


def test_the_answer_holds_the_state_after_the_plan_for_every_job() -> None:
    description = {
        "nodes": [{"name": "n1", "gpus": 4}, {"name": "n2", "gpus": 4}],
        "jobs": [
            a_job("a", 2, 4, running={"n1": 2}),
            {"name": "b", "submit": 1, "workers": 4},
            {"name": "c", "submit": 2, "workers": 3},
        ],
    }
    answer: Any = plan(description, "fifo")
    assert list(answer) == ["allocation", "placement", "actions", "reasons", "parameter_servers"]
    assert answer["parameter_servers"] == {}
    assert answer["allocation"] == {"a": 2, "b": 4, "c": 0}
    assert answer["placement"] == {"a": {"n1": 2}, "b": {"n2": 4}, "c": {}}
    assert answer["actions"] == [{"action": "start", "job": "b", "from": {}, "to": {"n2": 4}}]
    assert answer["reasons"]["c"] == "waits: 1 more device needed (2 free)."
    assert "a" not in answer["reasons"]


def test_the_order_of_the_description_does_not_matter() -> None:
    description = a_cluster(7, a_job("a", 1, 4), a_job("b", 2, 3), a_job("c", 1, 4, running={"n1": 2}))
    turned = description | {"jobs": list(reversed(description["jobs"]))}
    assert plan(description, "elastic-fifo") == plan(turned, "elastic-fifo")


def test_without_a_placement_devices_are_counted_and_no_node_is_named() -> None:
    jobs = [a_job("a", 1, running={"n1": 1}), a_job("b", 1, 6, gpus=1), a_job("c", gpus=0.5)]
    answer: Any = plan(a_cluster(8, *jobs), "elastic-fifo", "none")
    assert answer["allocation"] == {"a": 1, "b": 6, "c": 1}
    assert set(map(str, answer["placement"].values())) == {"{}"}


def test_dragon_packs_unless_told_otherwise() -> None:
    nodes = [{"name": "n1", "gpus": 2}, {"name": "n2", "gpus": 4}]
    answer: Any = plan({"nodes": nodes, "jobs": [{"name": "a", "workers": 4}]}, "dragon")
    assert answer["placement"] == {"a": {"n2": 4}}


def test_a_cluster_without_jobs_or_without_devices_is_no_error() -> None:
    assert plan({"nodes": [{"name": "n1", "gpus": 4}], "jobs": []}, "fifo")["allocation"] == {}
    assert plan(a_cluster(0, a_job("a")), "fifo")["allocation"] == {"a": 0}


def test_parts_of_a_device_share_it() -> None:
    jobs = [a_job("a", gpus=0.5, running={"n1": 1}), a_job("b", gpus=0.5), a_job("c", gpus=0.5)]
    assert plan(a_cluster(1, *jobs), "fifo")["allocation"] == {"a": 1, "b": 1, "c": 0}


def test_cpus_memory_labels_taints_and_cordons_count() -> None:
    nodes = [
        {"name": "small", "gpus": 8, "cpus": 2, "memory": "1Gi"},
        {"name": "tainted", "gpus": 8, "taints": ["mine"]},
        {"name": "closed", "gpus": 8, "cordoned": True},
        {"name": "labelled", "gpus": 8, "labels": {"kind": "new", "rack": "r1"}, "cpus": 4, "memory": 4 << 30},
    ]
    jobs = [
        {"name": "cpu", "cpus": 3},
        {"name": "memory", "submit": 1, "memory": "2Gi"},
        {"name": "picky", "submit": 2, "selector": {"kind": "new"}},
        {"name": "guest", "submit": 3, "workers": 8, "cpus": 5, "tolerations": ["mine"]},
        {"name": "nowhere", "submit": 4, "selector": {"kind": "old"}},
    ]
    answer: Any = plan({"nodes": nodes, "jobs": jobs}, "fifo")
    placed = answer["placement"]
    assert placed["cpu"] == placed["memory"] == placed["picky"] == {"labelled": 1}
    assert placed["guest"] == {"tainted": 8}
    assert placed["nowhere"] == {}
    assert answer["reasons"]["nowhere"].startswith("cannot run: no node")


def test_parameter_servers_sit_beside_the_workers_and_count() -> None:
    job = {"name": "a", "workers": 2, "running": {"n1": 2}, "cpus": 1, "ps": {"replicas": 1, "cpus": 2}}
    other = {"name": "b", "submit": 1, "workers": 1, "cpus": 1}
    nodes = [{"name": "n1", "gpus": 4, "cpus": 4}]
    assert plan({"nodes": nodes, "jobs": [job, other]}, "fifo")["allocation"] == {"a": 2, "b": 0}


def test_a_curve_that_is_not_concave_is_repaired_with_a_notice() -> None:
    answer: Any = plan(a_cluster(4, a_job("a", 1, 4, speedup=[1, 1.2, 3.0])), "ffdl")
    assert answer["notices"] == ["The speed-up curve of job 'a' was not concave; it is used as 1, 2, 3."]


@pytest.mark.parametrize(
    ("now", "notices"),
    [
        (None, []),
        (5, []),
        (4, ["Submitted after now (4), but planned for as if there already: 'b'."]),
        (0, ["Submitted after now (0), but planned for as if there already: 'a', 'b'."]),
    ],
)
def test_a_job_of_the_future_is_planned_for_with_a_notice(now: int | None, notices: list[str]) -> None:
    answer: Any = plan(a_cluster(4, a_job("a", submit=3), a_job("b", submit=5), now=now), "fifo")
    assert answer["allocation"] == {"a": 1, "b": 1}
    assert answer.get("notices", []) == notices


def test_deciding_again_on_the_result_changes_nothing() -> None:
    description = a_cluster(7, a_job("a", 1, 4), a_job("b", 2, 3), a_job("c", 1, 4))
    first: Any = plan(description, "elastic-fifo")
    for job in description["jobs"]:
        job["running"] = first["placement"][job["name"]]
    second: Any = plan(description, "elastic-fifo")
    assert second["actions"] == []
    assert second["allocation"] == first["allocation"]


@pytest.mark.parametrize(
    ("part", "policy", "sentence"),
    [
        ({"jobs": [{"name": "a", "min": 0}]}, "fifo", "mine.yaml: job 'a', key 'min': found 0"),
        ({"nodes": []}, "fifo", "mine.yaml: the description has no nodes"),
        ({}, "fiffo", "There is no policy 'fiffo'"),
    ],
)
def test_the_file_is_named_where_the_description_is_wrong(part: dict[str, Any], policy: str, sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        plan({"nodes": [{"name": "n1", "gpus": 4}], "jobs": []} | part, policy, source="mine.yaml")
    assert str(refusal.value).startswith(sentence)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"nods": []}, "the key 'nods' is unknown; did you mean 'nodes'?"),
    ({"nodes": []}, "the description has no nodes"),
    ({"nodes": "n1"}, "key 'nodes': found 'n1', expected a list"),
    ({"nodes": ["n1"]}, "node 1: found 'n1', expected a mapping"),
    ({"nodes": [{"gpus": 1}]}, "node 1, key 'name': found nothing"),
    ({"nodes": [{"name": "n1", "gpu": 1}]}, "the key 'gpu' is unknown; did you mean 'gpus'?"),
    ({"nodes": [{"name": "n1", "gpus": -1}]}, "node 'n1', key 'gpus': found -1"),
    ({"nodes": [{"name": "n1", "gpus": 1.5}]}, "found 1.5, expected a whole number"),
    ({"nodes": [{"name": "n1", "gpus": 10**400}]}, "expected a whole number"),
    ({"nodes": [{"name": "n1", "cpus": float("inf")}]}, "found inf"),
    ({"nodes": [{"name": "n1", "memory": "64Q"}]}, "found '64Q', expected bytes"),
    ({"nodes": [{"name": "n1", "cordoned": "yes"}]}, "expected true or false"),
    ({"nodes": [{"name": "n1"}, {"name": "n1"}]}, "node 'n1' is described twice"),
    ({"now": float("nan")}, "key 'now': found nan"),
    ({"jobs": [{"name": "a"}, {"name": "a"}]}, "job 'a' is described twice"),
    ({"jobs": [{"name": "a", "min": 3, "max": 2}]}, "job 'a': min 3 is above max 2"),
    ({"jobs": [{"name": "a", "min": 3, "workers": 2}]}, "job 'a': min 3 is above workers 2"),
    ({"jobs": [{"name": "a", "min": 1, "max": 2, "workers": 3}]}, "workers 3 is not between min 1 and max 2"),
    ({"jobs": [{"name": "a", "workers": 0}]}, "key 'workers': found 0, expected a whole number from 1"),
    ({"jobs": [{"name": "a", "workers": True}]}, "key 'workers': found 'True'"),
    ({"jobs": [{"name": "a", "remaining": 0}]}, "key 'remaining': found 0, expected a number above 0"),
    ({"jobs": [{"name": "a", "remaining": 1e300}]}, "found 1e+300, expected a number of at most 1,000,000,000,000,000"),
    ({"jobs": [{"name": "a\nb"}]}, "expected a name without line breaks"),
    ({"jobs": [{"name": "a", "remaining": -5}]}, "found -5, expected a number above 0"),
    ({"jobs": [{"name": "a", "submit": "now"}]}, "key 'submit': found 'now'"),
    ({"jobs": [{"name": "a", "speedup": []}]}, "key 'speedup': found '[]'"),
    ({"jobs": [{"name": "a", "speedup": [1, -2]}]}, "key 'speedup': found -2"),
    ({"jobs": [{"name": "a", "running": {"n2": 1}}]}, "it runs on 'n2', which is no node; choose one of: n1."),
    ({"jobs": [{"name": "a", "workers": 5, "running": {"n1": 5}}]}, "node 'n1' has too few devices"),
    ({"jobs": [{"name": "a", "min": 2, "max": 3, "running": {"n1": 1}}]}, "it runs with 1 worker, outside 2 to 3"),
    ({"jobs": [{"name": "a", "running": {"n1": 4}}]}, "it runs with 4 workers, outside 1 to 1"),
    ({"jobs": [{"name": "a", "running": {"n1": -1}}]}, "key 'running', key 'n1': found -1"),
    ({"jobs": [{"name": "a", "gpus": 1.5}]}, "key 'gpus': found 1.5"),
    ({"jobs": [{"name": "a", "ps": {"replica": 1}}]}, "the key 'replica' is unknown; did you mean 'replicas'?"),
    ({"jobs": [{"name": "a", "tolerations": "x"}]}, "key 'tolerations': found 'x', expected a list"),
]


@pytest.mark.parametrize(("part", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_wrong_description_is_refused_in_one_sentence(part: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        plan({"nodes": [{"name": "n1", "gpus": 4}], "jobs": []} | part, "fifo")
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_rules_describe_their_parameters() -> None:
    listed: Any = rules()
    fifo = next(info for info in listed["policy"] if info["name"] == "fifo")
    assert fifo["aliases"] == ["FIFO"]
    assert [parameter["name"] for parameter in fifo["parameters"]] == ["preempt", "backfill"]
    assert {info["name"] for info in listed["placement"]} == {"none", "pack", "spread", "stay", "topology"}
