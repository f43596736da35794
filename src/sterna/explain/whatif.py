"""`whatif`: a recorded journal under another policy, compared in two ways.

Round by round: the other policy decides on each recorded snapshot. Differences do not add up, because every round
starts from the recording. As a whole: the recorded jobs are simulated on the recorded nodes, under the other policy and
under the recorded rules, which shows how far the simulation can be trusted.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sterna.control.journal import Round, read_opening
from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.errors import UserError
from sterna.explain.formatting import by_node, node_list, workers_on
from sterna.explain.history import JournalHistory
from sterna.explain.rerun import rerun
from sterna.explain.rounds import ReadProgress, rounds_of
from sterna.model.formatting import format_count
from sterna.model.json_object import JsonObject
from sterna.model.plan import Action, ActionKind
from sterna.settings import DEFAULT_PLACEMENT, is_count_only
from sterna.wiring import make_rules, preferred_placement

_MOST_DIFFERENCES = 3
_COUNTED = {
    ActionKind.START: "starts",
    ActionKind.STOP: "preemptions",
    ActionKind.MIGRATE: "migrations",
    ActionKind.SHRINK: "resizes",
    ActionKind.GROW: "resizes",
}


def whatif(
    journal: str | Path, policy: str, placement: str | None = None, progress: ReadProgress | None = None
) -> JsonObject:
    """Compare a recording with another policy, round by round and as a whole."""
    opening = read_opening(journal)
    placement = _choose_placement(policy, opening.placement) if placement is None else placement
    if is_count_only(placement) != is_count_only(opening.placement):
        raise UserError(
            f"'{journal}' was decided with placement {opening.placement}, which cannot be compared with {placement}: "
            "only one of them puts workers on nodes; choose another --placement."
        )
    rules, recorded_rules = (
        make_rules(policy, placement, *opening.others),
        make_rules(opening.policy, opening.placement, *opening.others),
    )
    history, comparison = JournalHistory(), _RoundComparison(rules)
    notices: list[str] = []
    if opening.knowledge != "true":
        notices.append(
            f"The journal was written with knowledge {opening.knowledge}: its work and curves are what was believed "
            "then, and the runs below take them as true."
        )
    for recorded in rounds_of(journal, progress, notices.append):
        history.add(recorded)
        comparison.add(recorded)
    if not history.rounds:
        raise UserError(f"'{journal}' has no rounds; run longer, or choose another journal.")
    again = rerun(history, recorded_rules, rules)
    return {
        "policy": policy,
        "placement": placement,
        "recorded_policy": opening.policy,
        "recorded_placement": opening.placement,
        "rounds": history.rounds,
        "rounds_that_differ": comparison.differing,
        "recorded_actions": _counts(comparison.recorded),
        "actions": _counts(comparison.would),
        "differences": comparison.differences,
        "rerun": again.document,
        "notices": notices + again.notices,
    }


def _choose_placement(policy: str, recorded: str) -> str:
    """Return the recorded placement, unless the policy prefers another and the journal has node assignments."""
    usual = preferred_placement(policy)
    return recorded if is_count_only(recorded) or usual == DEFAULT_PLACEMENT else usual


def _counts(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in dict.fromkeys(_COUNTED.values())}


class _RoundComparison:
    """Actions of other rules in each recorded round, next to the recorded ones."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._start: float | None = None
        self.differing = 0
        self.recorded, self.would = Counter[str](), Counter[str]()
        self.differences: list[JsonObject] = []

    def add(self, recorded: Round) -> None:
        snapshot = recorded.snapshot
        self._start = snapshot.now if self._start is None else self._start
        plan = decide(snapshot, self._rules).plan
        check(plan, snapshot)
        self.recorded.update(_COUNTED[action.kind] for action in recorded.actions if action.kind in _COUNTED)
        self.would.update(_COUNTED[action.kind] for action in plan if action.kind in _COUNTED)
        then, now = ({action.row: action for action in actions} for actions in (recorded.actions, plan))
        rows = sorted(
            row for row in then.keys() | now.keys() if row not in then or row not in now or then[row] != now[row]
        )
        if not rows:
            return
        self.differing += 1
        if len(self.differences) < _MOST_DIFFERENCES:
            sentence = _difference(recorded, rows[0], then.get(rows[0]), now.get(rows[0]))
            others = f", and {format_count(len(rows) - 1, 'more job')} otherwise" if len(rows) > 1 else ""
            at = snapshot.now - self._start
            self.differences.append({"round": recorded.number, "at_s": at, "sentence": f"{sentence}{others}."})


def _difference(recorded: Round, row: int, then: Action | None, now: Action | None) -> str:
    was, would = _describe_action(recorded, row, then), _describe_action(recorded, row, now)
    if was == would:  # only the mark differs
        return f"{recorded.snapshot.jobs.name_of(row)} would have been {would} and promoted"
    return f"{recorded.snapshot.jobs.name_of(row)} would have been {would} where it was {was}"


def _describe_action(recorded: Round, row: int, action: Action | None) -> str:
    snapshot = recorded.snapshot
    if action is None:
        assignment = by_node(snapshot, snapshot.assignment_of(row))
        return f"kept at {workers_on(assignment)}" if assignment else "left waiting"
    assignment = by_node(snapshot, action.after)
    words = {ActionKind.START: "started with", ActionKind.SHRINK: "shrunk to", ActionKind.GROW: "grown to"}
    if action.kind is ActionKind.STOP:
        return "stopped"
    if action.kind is ActionKind.SET_CPU_SHARE:
        return f"given {1.0 if action.cpu_share is None else action.cpu_share:.2g} times an equal share"
    return (
        f"{words[action.kind]} {workers_on(assignment)}"
        if action.kind in words
        else f"moved to {node_list(assignment)}"
    )
