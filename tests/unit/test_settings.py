"""The tree of settings: every one is described, has names of its own, and is offered by the command it belongs to."""

from __future__ import annotations

import pytest

from sterna.settings import (
    LeaseSettings,
    OperatorSettings,
    SettingEntry,
    Settings,
    entries,
    entry,
    is_count_only,
    make_settings,
)

ALL = list(entries())


def _by_path(each: SettingEntry) -> str:
    return ".".join(each.path)


@pytest.mark.parametrize("each", ALL, ids=_by_path)
def test_every_setting_is_described_in_one_sentence(each: SettingEntry) -> None:
    words = each.words.partition("  [default: ")[0]
    assert words[0].isupper()
    assert words.endswith(".")
    assert each.has_flag or each.is_in_chart, "a setting that nobody can make"
    assert each.metavar or not each.has_flag or isinstance(each.default, bool)


@pytest.mark.parametrize("command", ["operator", "monitor"])
def test_no_two_settings_share_a_name(command: str) -> None:
    mine = [each for each in ALL if each.path[0] == command and each.has_flag]
    for names in ([each.flag for each in mine], [each.environment for each in mine]):
        assert len(names) == len(set(names))


def test_values_of_the_chart_have_places_of_their_own() -> None:
    values = [each.value for each in ALL if each.is_in_chart]
    assert len(values) == len(set(values))
    assert not [value for value in values if any(other.startswith(f"{value}.") for other in values)]


def test_a_setting_goes_by_one_name_in_every_form() -> None:
    each = entry("operator.lease.duration_seconds")
    assert each.flag == "--lease-duration"
    assert each.environment == "STERNA_OPERATOR_LEASE_DURATION_SECONDS"
    assert each.value == "operator.lease.durationSeconds"
    assert entry("operator.leader_election").flag == "--leader-election/--no-leader-election"
    assert entry("operator.replicas").flag == ""
    assert entry("operator.kubeconfig").value == ""


def test_older_systems_variables_are_understood() -> None:
    """DRAGON's domain, container-migration's node, endpoint and (misspelt) threshold."""
    aliases = {name for each in ALL for name in each.aliases}
    assert aliases == {"CUSTOM_CLUSTER_DOMAIN", "NODE_NAME", "SERVER_ENDPOINT", "OVERLOAD_THREESHOLD"}


def test_chosen_settings_are_laid_over_the_defaults() -> None:
    chosen = make_settings(OperatorSettings, {"policy": "tiresias", "lease.name": "mine"})
    assert chosen == OperatorSettings(policy="tiresias", lease=LeaseSettings(name="mine"))
    assert make_settings(Settings, {}) == Settings()


def test_the_lease_is_given_up_before_others_may_take_it() -> None:
    lease = LeaseSettings()
    assert lease.retry_seconds < lease.renew_seconds < lease.duration_seconds


@pytest.mark.parametrize(("placement", "counts"), [("none", True), (" none :x=1", True), ("stay", False), ("", False)])
def test_a_placement_that_only_counts_is_known_however_it_is_written(placement: str, counts: bool) -> None:
    assert is_count_only(placement) == counts


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # typer reads names that click is about to drop
@pytest.mark.parametrize("command", ["operator", "monitor"])
def test_the_command_offers_every_setting_and_no_other(command: str) -> None:
    offered = _offered(command)
    for each in (each for each in ALL if each.path[0] == command and each.has_flag):
        flags, variables, default = offered.pop(each.flag.partition("/")[0])
        assert set(each.flag.split("/")) == flags
        assert variables == {each.environment, *each.aliases}
        assert str("" if default is None else default) == str(each.default)  # a path that is not set is None
    assert list(offered) == []


def _offered(command: str) -> dict[str, tuple[set[str], set[str], object]]:
    """Flags of a command, each with all its spellings, its variables and its default."""
    import click
    import typer

    from sterna.cli.main import create_app

    group = typer.main.get_command(create_app([command]))
    assert isinstance(group, click.Group)
    found = {}
    for parameter in group.commands[command].params:
        if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
            continue
        names = parameter.envvar
        variables = {names} if isinstance(names, str) else set(names or ())
        flags = {*parameter.opts, *parameter.secondary_opts}
        found[next(flag for flag in parameter.opts if flag.startswith("--"))] = (flags, variables, parameter.default)
    return found
