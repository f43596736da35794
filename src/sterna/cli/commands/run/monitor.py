"""`sterna monitor`: run the progress monitor of one node; a DaemonSet runs one on every node of a cluster."""

from __future__ import annotations

from pathlib import Path

from sterna.cli.parsing.flags import expand_settings
from sterna.errors import UserError, did_you_mean
from sterna.settings import MonitorSettings

_GROWTH_RULES = ("container-migration", "specon", "sterna")
_MOVE_REQUESTS = ("posted", "all", "none")
_MINIMUMS = {"alpha": 0.0, "interval_seconds": 0.0, "overload_threshold": 0.0}


@expand_settings(MonitorSettings, "monitor", _MINIMUMS)
def command(settings: MonitorSettings) -> int:
    """Watch the training pods of one node and send their progress to the operator; usually a DaemonSet runs it.

    It reads the agent's reports, CSV and TensorBoard files in volumes, and the output of pods; jobs of
    container-migration send their metric to it. Without a monitor progress is unknown; training does not depend on it.

    \b
    Examples:
      sterna monitor --node node-1
      sterna monitor --node node-1 --growth specon --alpha 0.1 --interval 10 --ask-for all
    """
    if not settings.node:
        raise UserError("The monitor does not know its node; give --node NAME, or set NODE_NAME.")
    for flag, chosen, known in (
        ("--growth", settings.growth, _GROWTH_RULES),
        ("--ask-for", settings.ask_for, _MOVE_REQUESTS),
    ):
        if chosen not in known:
            raise UserError(f"{flag} {chosen}: there is no such choice: {did_you_mean(chosen, known)}")
    from sterna.logs import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    _run(settings)
    return 0


def _run(settings: MonitorSettings) -> None:
    import signal

    from sterna.backends.kubernetes.monitor.host_paths import Roots
    from sterna.backends.kubernetes.monitor.main import MonitorAddresses, connect_monitor
    from sterna.backends.kubernetes.monitor.monitor import MonitorOptions, MoveScope
    from sterna.model.growth import GrowthRule, Strict

    strict = Strict.NO if settings.growth == "sterna" else Strict(settings.growth)
    host = Path(settings.host_root) if settings.host_root else None
    options = MonitorOptions(
        settings.node,
        Roots(kubelet=Path(settings.kubelet_root), logs=Path(settings.logs_root), host=host),
        MoveScope(settings.ask_for),
        GrowthRule(strict=strict, alpha=settings.alpha, interval_seconds=settings.interval_seconds),
        settings.overload_threshold,
    )
    addresses = MonitorAddresses(
        listen=settings.listen,
        server=settings.server,
        lease_name=settings.lease_name,
        lease_namespace=settings.lease_namespace,
        token_file=Path(settings.token),
    )
    monitor = connect_monitor(options, addresses, settings.kubeconfig, settings.context)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: monitor.stop())
    print(f"Sterna watches the pods of node {options.node}.", flush=True)
    monitor.run()
