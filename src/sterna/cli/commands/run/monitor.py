"""`sterna monitor`: one on each node of a cluster, as a DaemonSet; hears how training goes there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from sterna.cli.parsing.flags import flag
from sterna.errors import UserError, did_you_mean
from sterna.settings import MonitorSettings

_USUAL = MonitorSettings()
_RULES = ("container-migration", "specon", "sterna")
_ASKING = ("posted", "all", "none")


Kubeconfig = Annotated[str, flag("monitor.kubeconfig")]
Context = Annotated[str, flag("monitor.context")]
Node = Annotated[str, flag("monitor.node")]
Listen = Annotated[str, flag("monitor.listen")]
Server = Annotated[str, flag("monitor.server")]
LeaseName = Annotated[str, flag("monitor.lease_name")]
LeaseNamespace = Annotated[str, flag("monitor.lease_namespace")]
Token = Annotated[Path, flag("monitor.token")]
Alpha = Annotated[float, flag("monitor.alpha", min=0.0)]
Interval = Annotated[float, flag("monitor.interval_seconds", min=0.0)]
Threshold = Annotated[float, flag("monitor.overload_threshold", min=0.0)]
LogLevel = Annotated[str, flag("monitor.log_level")]
LogFormat = Annotated[str, flag("monitor.log_format")]
KubeletRoot = Annotated[Path, flag("monitor.kubelet_root")]
LogsRoot = Annotated[Path, flag("monitor.logs_root")]
HostRoot = Annotated[str, flag("monitor.host_root")]
Growth = Annotated[str, flag("monitor.growth")]
ApiReader = Annotated[str, flag("monitor.ask_for")]


def command(
    kubeconfig: Kubeconfig = _USUAL.kubeconfig,
    context: Context = _USUAL.context,
    node: Node = _USUAL.node,
    listen: Listen = _USUAL.listen,
    server: Server = _USUAL.server,
    lease_name: LeaseName = _USUAL.lease_name,
    lease_namespace: LeaseNamespace = _USUAL.lease_namespace,
    token: Token = Path(_USUAL.token),
    growth: Growth = _USUAL.growth,
    alpha: Alpha = _USUAL.alpha,
    interval: Interval = _USUAL.interval_seconds,
    threshold: Threshold = _USUAL.overload_threshold,
    asking: ApiReader = _USUAL.ask_for,
    log_level: LogLevel = _USUAL.log_level,
    log_format: LogFormat = _USUAL.log_format,
    kubelet_root: KubeletRoot = Path(_USUAL.kubelet_root),
    logs_root: LogsRoot = Path(_USUAL.logs_root),
    host_root: HostRoot = _USUAL.host_root,
) -> int:
    """Watch the training pods of one node and pass on how far they are; usually the cluster starts it.

    It reads what the agent writes, CSV and TensorBoard files in volumes, and output; jobs of container-migration send
    their metric to it. Training does not depend on it: without a monitor progress is unknown, nothing else.

    \b
    Examples:
      sterna monitor --node node-1
      sterna monitor --node node-1 --growth specon --alpha 0.1 --interval 10 --ask-for all
    """
    if not node:
        raise UserError("The monitor does not know its node; give --node NAME, or set NODE_NAME.")
    for name, chosen, known in (("--growth", growth, _RULES), ("--ask-for", asking, _ASKING)):
        if chosen not in known:
            raise UserError(f"{name} {chosen}: there is no such choice: {did_you_mean(chosen, known)}")
    from sterna.logs import configure_logging

    configure_logging(log_level, log_format)
    _run(
        {"node": node, "threshold": threshold, "asking": asking},
        {"growth": growth, "alpha": alpha, "interval": interval},
        {"kubelet": kubelet_root, "logs": logs_root, "host": Path(host_root) if host_root else None},
        {"listen": listen, "server": server, "lease_name": lease_name, "lease_namespace": lease_namespace},
        {"token": token, "kubeconfig": kubeconfig, "context": context},
    )
    return 0


def _run(
    chosen: dict[str, Any], rule: dict[str, Any], roots: dict[str, Any], around: dict[str, Any], login: dict[str, Any]
) -> None:
    import signal

    from sterna.backends.kubernetes.monitor.host_paths import Roots
    from sterna.backends.kubernetes.monitor.main import Surroundings, connected
    from sterna.backends.kubernetes.monitor.monitor import ApiReader as Which
    from sterna.backends.kubernetes.monitor.monitor import Options
    from sterna.model.growth import GrowthRule, Strict

    strict = Strict.NO if rule["growth"] == "sterna" else Strict(rule["growth"])
    options = Options(
        chosen["node"],
        Roots(**roots),
        Which(chosen["asking"]),
        GrowthRule(strict=strict, alpha=rule["alpha"], interval_seconds=rule["interval"]),
        chosen["threshold"],
    )
    running = connected(
        options, Surroundings(**around, token_file=login["token"]), login["kubeconfig"], login["context"]
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.stop())
    print(f"Sterna watches the pods of node {options.node}.", flush=True)
    running.run()
