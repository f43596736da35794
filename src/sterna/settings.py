"""Defaults, and the tree of settings of Sterna on Kubernetes.

`Settings` covers the operator, the monitor and their installation. Flags, environment variables, the chart's values and
`docs/settings.md` are generated from it, so a setting is described only here. The command line and Helm read the
values; nothing here reads the environment. Parameters of a rule belong to the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar, get_type_hints

BASELINE_POLICY = "fifo:preempt=false"
"""Baseline of comparisons, the usual practice: first come, first served with backfill, without preemption."""

DEFAULT_POLICY = "least-delay"
"""Policy of a new cluster, local or on Kubernetes."""

DEFAULT_PLACEMENT = "stay"
"""Placement of a policy that prefers no other one; see `sterna.wiring.preferred_placement`."""

OPERATOR_PORT = 8769
MONITOR_PORT = 8081
"""Ports of container-migration, so that its jobs and scripts keep working."""


def is_count_only(placement: str) -> bool:
    """Return True if this placement, with or without parameters, is `none`, which assigns no nodes."""
    return placement.partition(":")[0].strip() == "none"


def _set(
    default: Any, words: str, metavar: str = "", *, aliases: tuple[str, ...] = (), flag: bool = True, chart: bool = True
) -> Any:
    """Declare a setting: its default, its description, and where it can be set."""
    about = {"default": default, "words": words, "metavar": metavar, "aliases": aliases, "flag": flag, "chart": chart}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default, metadata=about)
    return field(default=default, metadata=about)


def _chart_only(default: Any, words: str) -> Any:
    """Declare a setting of the installation, which the processes do not read."""
    return _set(default, words, flag=False)


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    """Leader election of the operator's replicas."""

    name: str = _set("sterna-operator", "Name of the Lease that the acting replica holds.", "NAME")
    namespace: str = _set("", "Namespace of the Lease.  [default: the operator's own]", "NAME", chart=False)
    duration_seconds: float = _set(15.0, "Time after which a Lease that is not renewed expires.", "SECONDS")
    renew_seconds: float = _set(10.0, "Time without a renewal after which the holder stops writing.", "SECONDS")
    retry_seconds: float = _set(
        2.0, "Interval at which the holder renews the Lease and the others check it.", "SECONDS"
    )


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """`sterna operator`."""

    kubeconfig: str = _set(
        "", "How to reach the cluster.  [default: $KUBECONFIG, ~/.kube/config, or the pod's own]", "FILE", chart=False
    )
    context: str = _set("", "Which context of the kubeconfig.  [default: the current one]", "NAME", chart=False)
    namespace: str = _set("", "Only jobs of this namespace.  [default: all]", "NAME")
    policy: str = _set(DEFAULT_POLICY, "How many workers for each job; see `sterna policies`.", "RULE")
    policy_for: str = _set(
        "",
        "Another policy for a GPU type, as in the label of its nodes; may be repeated, or several separated by spaces.",
        "TYPE=RULE",
    )
    placement: str = _set("", "Which node for each worker.  [default: stay; with dragon: pack]", "RULE")
    migration: str = _set("none", "Which running worker moves.", "RULE")
    cpu_share: str = _set("equal", "How a shared node's CPUs are divided.", "RULE")
    reservation: str = _set("serving", "Rule that reserves capacity for serving pods.", "RULE")
    evict_unsaved: bool = _set(
        False, "Let serving pods and higher priorities stop jobs that have not shown that they can save."
    )
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
    listen: str = _set(
        f"127.0.0.1:{OPERATOR_PORT}", "Address that the operator's HTTP server listens on.", "HOST:PORT", chart=False
    )
    remote_api: bool = _set(
        False, "Answer the REST API to other hosts, too; only behind a proxy that terminates TLS: callers send tokens."
    )
    authenticate: bool = _set(True, "Accept reports and move requests only with a monitor's token.")
    identity: str = _set("", "Name of this replica in the Lease.  [default: the host name]", "NAME", chart=False)
    leader_election: bool = _set(True, "Act only while holding the Lease.")
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    log_level: str = _set("info", "Least severe messages to log: debug, info, warning, error.", "LEVEL")
    log_format: str = _set("text", "Format of the log on stderr: text, or json with one object per line.", "FORMAT")
    stall_seconds: float = _set(
        120.0,
        "Without a finished round for this long the loop counts as hung: /healthz fails, the Lease is not renewed.",
        "SECONDS",
    )
    journal: str = _set("", "Write every round to this file, for sterna replay and explain.", "FILE", chart=False)
    replicas: int = _chart_only(2, "Number of replicas; one leads, the others stand by.")
    priority_class: str = _chart_only("", "PriorityClass of the operator's pods, such as system-cluster-critical.")
    resources: Mapping[str, Any] = _chart_only(
        {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "Resources of each operator pod; enough for 5,000 nodes and 100,000 pods.",
    )
    node_selector: Mapping[str, str] = _chart_only({}, "Node selector of the operator's pods.")
    tolerations: Sequence[Mapping[str, Any]] = _chart_only(
        [{"key": "vodascheduler/hostname", "operator": "Exists"}],
        "Tolerations of the operator's pods; Voda's taint is tolerated.",
    )


@dataclass(frozen=True, kw_only=True)
class MonitorSettings:
    """`sterna monitor`, one pod per node."""

    kubeconfig: str = _set(
        "", "How to reach the cluster.  [default: $KUBECONFIG, ~/.kube/config, or the pod's own]", "FILE", chart=False
    )
    context: str = _set("", "Which context of the kubeconfig.  [default: the current one]", "NAME", chart=False)
    node: str = _set("", "Node that this monitor observes.", "NAME", aliases=("NODE_NAME",), chart=False)
    listen: str = _set(
        f"0.0.0.0:{MONITOR_PORT}", "Address that jobs report to: POST /monitor.", "HOST:PORT", chart=False
    )
    server: str = _set(
        "",
        "Address of the operator's HTTP server.  [default: the holder of the Lease]",
        "URL",
        aliases=("SERVER_ENDPOINT",),
        chart=False,
    )
    lease_name: str = _set("sterna-operator", "Name of the operator's Lease.", "NAME", chart=False)
    lease_namespace: str = _set("", "Its namespace.  [default: the monitor's own]", "NAME", chart=False)
    token: str = _set(
        "/var/run/secrets/sterna/token",
        "File with the service account token that authenticates the monitor.",
        "FILE",
        chart=False,
    )
    growth: str = _set(
        "container-migration", "Rule that detects a converged pod: container-migration, specon, sterna.", "RULE"
    )
    alpha: float = _set(0.1, "Part of its peak below which growth is low: SpeCon's threshold.", "FRACTION")
    interval_seconds: float = _set(10.0, "Time between two samples of a job's growth: SpeCon's interval.", "SECONDS")
    overload_threshold: float = _set(
        1.0, "Standard deviations above the mean at which a node is overloaded.", "N", aliases=("OVERLOAD_THREESHOLD",)
    )
    ask_for: str = _set(
        "posted", "Pods for which the monitor requests moves: posted (those that POST /monitor), all, none.", "WHICH"
    )
    log_level: str = _set("info", "Least severe messages to log: debug, info, warning, error.", "LEVEL")
    log_format: str = _set("text", "Format of the log on stderr: text, or json with one object per line.", "FORMAT")
    kubelet_root: str = _set("/var/lib/kubelet", "The kubelet's directory on the node.", "FOLDER")
    logs_root: str = _set("/var/log/pods", "Directory of pod logs on the node.", "FOLDER")
    host_root: str = _set("", "Mount point of the node's file system, for hostPath volumes.", "FOLDER", chart=False)
    host_files: bool = _chart_only(
        False, "Read hostPath volumes too; the monitor then mounts the whole node read-only."
    )
    enabled: bool = _chart_only(
        True, "Install the monitor; without it progress is known only from the termination messages of pods."
    )
    host_network: bool = _chart_only(False, "Use the node's network, for networks without host ports.")
    resources: Mapping[str, Any] = _chart_only(
        {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}, "Resources of each monitor pod."
    )
    tolerations: Sequence[Mapping[str, Any]] = _chart_only(
        [{"operator": "Exists"}], "Tolerations of the monitor's pods; by default they run on every node."
    )


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """The container image of the operator and of the monitor."""

    repository: str = _chart_only("ghcr.io/sterna-dev/sterna", "Image name; build it from the Dockerfile.")
    tag: str = _chart_only("", "Image tag; the chart's appVersion if empty.")
    pull_policy: str = _chart_only("IfNotPresent", "Image pull policy: Always, IfNotPresent, Never.")
    pull_secrets: Sequence[Mapping[str, str]] = _chart_only([], "Image pull secrets.")


@dataclass(frozen=True, kw_only=True)
class DefinitionSettings:
    """Custom resource definitions that come with Sterna."""

    training_jobs: bool = _chart_only(True, "Install the kind TrainingJob.")
    tf_jobs: bool = _chart_only(True, "Install the kind TFJob; switch it off where Kubeflow's is installed.")


@dataclass(frozen=True, kw_only=True)
class InstallSettings:
    """Objects that are installed beside the processes."""

    fence: bool = _chart_only(True, "Admission policy that rejects writes of a replica that no longer holds the Lease.")
    disruption_budget: bool = _chart_only(
        True, "PodDisruptionBudget that keeps one operator replica while nodes are drained."
    )
    network_policy: bool = _chart_only(True, "NetworkPolicy that allows only the two served ports.")
    user_roles: bool = _chart_only(True, "Extend the ClusterRoles edit and view to TrainingJobs.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of Sterna on Kubernetes."""

    operator: OperatorSettings = field(default_factory=OperatorSettings)
    monitor: MonitorSettings = field(default_factory=MonitorSettings)
    image: ImageSettings = field(default_factory=ImageSettings)
    definitions: DefinitionSettings = field(default_factory=DefinitionSettings)
    install: InstallSettings = field(default_factory=InstallSettings)


class SettingEntry(NamedTuple):
    """One setting with all of its names."""

    path: tuple[str, ...]
    """From the root of the tree: `("operator", "lease", "name")`."""
    default: Any
    words: str
    metavar: str
    aliases: tuple[str, ...]
    """Environment variables of older systems."""
    has_flag: bool
    is_in_chart: bool

    @property
    def flag(self) -> str:
        """Command-line flag, without a unit; a boolean has a pair of flags."""
        if not self.has_flag:
            return ""
        name = "-".join(self.path[1:]).replace("_", "-").removesuffix("-seconds")
        return f"--{name}/--no-{name}" if isinstance(self.default, bool) else f"--{name}"

    @property
    def environment(self) -> str:
        return f"STERNA_{'_'.join(self.path)}".upper() if self.has_flag else ""

    @property
    def value(self) -> str:
        """Path in the chart's values."""
        return ".".join(_camel(part) for part in self.path) if self.is_in_chart else ""


def entries(kind: type[Any] = Settings, above: tuple[str, ...] = ()) -> Iterator[SettingEntry]:
    """Yield every setting of a tree in order of definition."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        path = (*above, each.name)
        if is_dataclass(hints[each.name]):
            yield from entries(hints[each.name], path)
            continue
        about = each.metadata
        yield SettingEntry(
            path,
            about["default"],
            about["words"],
            about["metavar"],
            about["aliases"],
            bool(about["flag"]),
            bool(about["chart"]),
        )


def entry(path: str) -> SettingEntry:
    """Return one setting by its path: `operator.lease.name`."""
    return next(each for each in entries() if ".".join(each.path) == path)


SettingsTree = TypeVar("SettingsTree")


def make_settings(kind: type[SettingsTree], chosen: Mapping[str, Any]) -> SettingsTree:
    """Make a tree of settings from values by path: `{"lease.name": "mine"}`."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        below = f"{each.name}."
        if is_dataclass(hints[each.name]):
            inner = {path.removeprefix(below): value for path, value in chosen.items() if path.startswith(below)}
            values[each.name] = make_settings(hints[each.name], inner)
        elif each.name in chosen:
            values[each.name] = chosen[each.name]
    return kind(**values)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
