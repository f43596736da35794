"""Choices that stand until a user makes another, in one place so that every way in agrees.

`Settings` is the tree of what can be set about Sterna on Kubernetes: the operator, the monitor, and how they are
installed. Flags, environment variables, the chart's values and `docs/settings.md` are made from it, so a setting is
described here and nowhere else. Values are read by whoever offers them (the command line, Helm): nothing here looks at
the environment. What a single rule may be told is not here either: its parameters live with the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar, get_type_hints

BASELINE_POLICY = "fifo:preempt=false"
"""What people run today: first come, first served, gaps filled, no job stopped. Comparisons are relative to it."""

DEFAULT_PLACEMENT = "stay"
"""Placement of a policy that prefers no other one; see `sterna.wiring.preferred_placement`."""

OPERATOR_PORT = 8769
MONITOR_PORT = 8081
"""Both as container-migration has them, so that its jobs and scripts find what they look for."""


def is_count_only(placement: str) -> bool:
    """Whether this placement, written as users do, gives nobody a node: `none`, which only counts devices."""
    return placement.partition(":")[0].strip() == "none"


def _set(
    default: Any, words: str, metavar: str = "", *, aliases: tuple[str, ...] = (), flag: bool = True, chart: bool = True
) -> Any:
    """A setting: its default, what it means, and where it can be made."""
    about = {"default": default, "words": words, "metavar": metavar, "aliases": aliases, "flag": flag, "chart": chart}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default, metadata=about)
    return field(default=default, metadata=about)


def _only_chart(default: Any, words: str) -> Any:
    """Something that only whoever installs Sterna can choose: the processes never hear of it."""
    return _set(default, words, flag=False)


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    """How the replicas of the operator agree on which of them acts."""

    name: str = _set("sterna-operator", "Name of the Lease that the acting replica holds.", "NAME")
    namespace: str = _set("", "Namespace of the Lease.  [default: the operator's own]", "NAME", chart=False)
    duration_seconds: float = _set(15.0, "How long a Lease that nobody renews keeps others away.", "SECONDS")
    renew_seconds: float = _set(10.0, "Without a renewal for so long the holder writes nothing more.", "SECONDS")
    retry_seconds: float = _set(2.0, "How often the holder renews it, and the others look.", "SECONDS")


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """`sterna operator`."""

    kubeconfig: str = _set(
        "", "How to reach the cluster.  [default: $KUBECONFIG, ~/.kube/config, or the pod's own]", "FILE", chart=False
    )
    context: str = _set("", "Which context of the kubeconfig.  [default: the current one]", "NAME", chart=False)
    namespace: str = _set("", "Only jobs of this namespace.  [default: all]", "NAME")
    policy: str = _set("elastic-fifo", "How many workers for each job; see `sterna policies`.", "RULE")
    policy_for: str = _set(
        "",
        "A policy of its own for a type of GPU, as the nodes' label has it; several times, or several with spaces.",
        "TYPE=RULE",
    )
    placement: str = _set("", "Which node for each worker.  [default: stay; with dragon: pack]", "RULE")
    migration: str = _set("none", "Which running worker moves.", "RULE")
    cpu_share: str = _set("equal", "How a shared node's CPUs are divided.", "RULE")
    reservation: str = _set("serving", "Who goes before all training.", "RULE")
    rate_limit_seconds: float = _set(0.0, "Least time between two rounds.", "SECONDS")
    default_image: str = _set("", "Image of a TrainingJob that names none.  [default: it has to name one]", "IMAGE")
    gpu_resource: str = _set(
        "nvidia.com/gpu", "What a TrainingJob's gpu asks nodes for: nvidia.com/gpu, amd.com/gpu.", "NAME"
    )
    kubeshare: str = _set(
        "both",
        "Which jobs are taken: both, off (all but TFJobs annotated DRAGON_KUBESHARE), only (those TFJobs alone).",
        "WHICH",
    )
    cluster_domain: str = _set(
        "", "Put behind the names of services, such as cluster.local.", "DOMAIN", aliases=("CUSTOM_CLUSTER_DOMAIN",)
    )
    listen: str = _set(f"127.0.0.1:{OPERATOR_PORT}", "Where the operator's service answers.", "HOST:PORT", chart=False)
    remote_api: bool = _set(
        False, "Answer the REST API to other hosts, too; only behind a proxy that terminates TLS: callers send tokens."
    )
    authenticate: bool = _set(True, "Take reports and requests to move from monitors only, known by their tokens.")
    identity: str = _set("", "Name in the Lease.  [default: the host's name]", "NAME", chart=False)
    leader_election: bool = _set(True, "Act only while holding the Lease.")
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    log_level: str = _set("info", "Least severe messages to log: debug, info, warning, error.", "LEVEL")
    log_format: str = _set("text", "Format of the log on stderr: text, or json with one object per line.", "FORMAT")
    stall_seconds: float = _set(
        120.0,
        "Without a finished round for this long the loop counts as hung: /healthz fails, the Lease is not renewed.",
        "SECONDS",
    )
    journal: str = _set("", "Keep every round in this file, for sterna replay and explain.", "FILE", chart=False)
    replicas: int = _only_chart(2, "One acts, the others wait to take over.")
    priority_class: str = _only_chart("", "For example system-cluster-critical, where the cluster allows it.")
    resources: Mapping[str, Any] = _only_chart(
        {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "Enough for 5,000 nodes and 100,000 pods.",
    )
    node_selector: Mapping[str, str] = _only_chart({}, "Nodes that the operator accepts.")
    tolerations: Sequence[Mapping[str, Any]] = _only_chart(
        [{"key": "vodascheduler/hostname", "operator": "Exists"}], "Taints that it tolerates; Voda's are kept working."
    )


@dataclass(frozen=True, kw_only=True)
class MonitorSettings:
    """`sterna monitor`, one on every node."""

    kubeconfig: str = _set(
        "", "How to reach the cluster.  [default: $KUBECONFIG, ~/.kube/config, or the pod's own]", "FILE", chart=False
    )
    context: str = _set("", "Which context of the kubeconfig.  [default: the current one]", "NAME", chart=False)
    node: str = _set("", "The node that it looks after.", "NAME", aliases=("NODE_NAME",), chart=False)
    listen: str = _set(f"0.0.0.0:{MONITOR_PORT}", "Where jobs report: POST /monitor.", "HOST:PORT", chart=False)
    server: str = _set(
        "",
        "Address of the operator's service.  [default: whoever holds the Lease]",
        "URL",
        aliases=("SERVER_ENDPOINT",),
        chart=False,
    )
    lease_name: str = _set("sterna-operator", "Name of the operator's Lease.", "NAME", chart=False)
    lease_namespace: str = _set("", "Its namespace.  [default: the monitor's own]", "NAME", chart=False)
    token: str = _set(
        "/var/run/secrets/sterna/token",
        "By what the operator knows its monitors; made by the cluster.",
        "FILE",
        chart=False,
    )
    growth: str = _set(
        "container-migration", "How a converged pod is told: container-migration, specon, sterna.", "RULE"
    )
    alpha: float = _set(0.1, "Growth below this part of its peak is low: SpeCon's threshold.", "SHARE")
    interval_seconds: float = _set(10.0, "Between two samples of a job's growth: SpeCon's interval.", "SECONDS")
    overload_threshold: float = _set(
        1.0, "Standard deviations above the mean at which a node is overloaded.", "N", aliases=("OVERLOAD_THREESHOLD",)
    )
    ask_for: str = _set(
        "posted", "Pods whose moves are asked for: posted (those that POST /monitor), all, none.", "WHICH"
    )
    log_level: str = _set("info", "Least severe messages to log: debug, info, warning, error.", "LEVEL")
    log_format: str = _set("text", "Format of the log on stderr: text, or json with one object per line.", "FORMAT")
    kubelet_root: str = _set("/var/lib/kubelet", "The kubelet's folder on the node.", "FOLDER")
    logs_root: str = _set("/var/log/pods", "Where the node keeps the output of its pods.", "FOLDER")
    host_root: str = _set("", "Where the node's own files are seen, for hostPath volumes.", "FOLDER", chart=False)
    host_files: bool = _only_chart(False, "Read hostPath volumes too; the monitor then sees the whole node, read-only.")
    enabled: bool = _only_chart(True, "Without it only what pods say when they end is known of their progress.")
    host_network: bool = _only_chart(False, "Where the network has no host ports: use the node's own network instead.")
    resources: Mapping[str, Any] = _only_chart(
        {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}, "Of each of them."
    )
    tolerations: Sequence[Mapping[str, Any]] = _only_chart(
        [{"operator": "Exists"}], "Every node has jobs to look after."
    )


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """The container image of the operator and of the monitor."""

    repository: str = _only_chart("ghcr.io/sterna-dev/sterna", "Where it is; build it from the Dockerfile.")
    tag: str = _only_chart("", "The chart's appVersion if empty.")
    pull_policy: str = _only_chart("IfNotPresent", "When nodes fetch it: Always, IfNotPresent, Never.")
    pull_secrets: Sequence[Mapping[str, str]] = _only_chart([], "Secrets for a registry that asks for a login.")


@dataclass(frozen=True, kw_only=True)
class DefinitionSettings:
    """The custom resources that come with Sterna."""

    training_jobs: bool = _only_chart(True, "Install the kind TrainingJob.")
    tf_jobs: bool = _only_chart(True, "Install the kind TFJob; switch it off where Kubeflow's is installed.")


@dataclass(frozen=True, kw_only=True)
class InstallSettings:
    """What is installed beside the processes."""

    fence: bool = _only_chart(True, "Refuse writes of a replica that does not hold the Lease any more.")
    disruption_budget: bool = _only_chart(True, "Keep one replica of the operator while nodes are drained.")
    network_policy: bool = _only_chart(True, "Let nothing in but the two ports that are served.")
    user_roles: bool = _only_chart(True, "Let whoever may edit or view a namespace do so with its TrainingJobs.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set about Sterna on Kubernetes."""

    operator: OperatorSettings = field(default_factory=OperatorSettings)
    monitor: MonitorSettings = field(default_factory=MonitorSettings)
    image: ImageSettings = field(default_factory=ImageSettings)
    definitions: DefinitionSettings = field(default_factory=DefinitionSettings)
    install: InstallSettings = field(default_factory=InstallSettings)


class Entry(NamedTuple):
    """One setting, with every name it goes by."""

    path: tuple[str, ...]
    """From the root of the tree: `("operator", "lease", "name")`."""
    default: Any
    words: str
    metavar: str
    aliases: tuple[str, ...]
    """Environment variables by which older systems know it."""
    has_flag: bool
    is_in_chart: bool

    @property
    def flag(self) -> str:
        """As it is typed; units are said by the metavar. A switch that is on has a flag that turns it off."""
        if not self.has_flag:
            return ""
        name = "-".join(self.path[1:]).replace("_", "-").removesuffix("-seconds")
        return f"--{name}/--no-{name}" if isinstance(self.default, bool) else f"--{name}"

    @property
    def environment(self) -> str:
        return f"STERNA_{'_'.join(self.path)}".upper() if self.has_flag else ""

    @property
    def value(self) -> str:
        """Its place among the chart's values."""
        return ".".join(_camel(part) for part in self.path) if self.is_in_chart else ""


def entries(kind: type[Any] = Settings, above: tuple[str, ...] = ()) -> Iterator[Entry]:
    """Every setting of a tree, in the order in which it is written down."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        path = (*above, each.name)
        if is_dataclass(hints[each.name]):
            yield from entries(hints[each.name], path)
            continue
        about = each.metadata
        yield Entry(
            path,
            about["default"],
            about["words"],
            about["metavar"],
            about["aliases"],
            bool(about["flag"]),
            bool(about["chart"]),
        )


def entry(path: str) -> Entry:
    """One of them, by its path: `operator.lease.name`."""
    return next(each for each in entries() if ".".join(each.path) == path)


Tree = TypeVar("Tree")


def tree_of(kind: type[Tree], chosen: Mapping[str, Any]) -> Tree:
    """A tree of settings in which some are chosen, by their paths below it: `{"lease.name": "mine"}`."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        below = f"{each.name}."
        if is_dataclass(hints[each.name]):
            inner = {path.removeprefix(below): value for path, value in chosen.items() if path.startswith(below)}
            values[each.name] = tree_of(hints[each.name], inner)
        elif each.name in chosen:
            values[each.name] = chosen[each.name]
    return kind(**values)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
