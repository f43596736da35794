"""Progress lines of common frameworks are parsed; other lines are ignored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import UserError
from sterna.progress import lines as reading_lines
from sterna.progress.lines import LineReader
from sterna.progress.names import is_rising, main_metric

Said = tuple[int | None, int | None, dict[str, float | None]]

KNOWN: list[tuple[str, Said]] = [
    ("step=100/1000 loss=0.25 acc=0.9", (100, 1000, {"loss": 0.25, "acc": 0.9})),
    ("Step 200: loss 0.24", (200, None, {"loss": 0.24})),
    ("Epoch [3/10], Step [100/600], Loss: 0.25", (1300, 6000, {"Loss": 0.25, "epoch": 3.0})),
    ("epoch 3 | train loss 0.31 | val loss 0.29", (3, None, {"train_loss": 0.31, "val_loss": 0.29})),
    ("[10/100] loss: 0.3", (10, 100, {"loss": 0.3})),
    ("iter 300 | loss nan", (300, None, {"loss": None})),
    ("2024-01-01 12:00:00,123 INFO step=5 loss=1e-3", (5, None, {"loss": 0.001})),
    ("Train Epoch: 2 [640/60000 (1%)]\tLoss: 2.134", (60640, None, {"Loss": 2.134, "epoch": 2.0})),
    ("batch 12, loss=1.5, accuracy: 92.5%", (12, None, {"loss": 1.5, "accuracy": 92.5})),
    ('{"step": 4, "total": 9, "loss": 0.2, "name": "x"}', (4, 9, {"loss": 0.2})),
    ('{"iteration": 4, "metrics": {"loss": 0.2}}', (4, None, {"loss": 0.2})),
    ("{'loss': 0.5, 'epoch': 0.32}", (None, None, {"loss": 0.5, "epoch": 0.32})),
    ("{'loss': '0.5', 'grad_norm': '1.2', 'epoch': '2'}", (2, None, {"loss": 0.5, "grad_norm": 1.2})),
    ("100\timages/sec: 12.3 +/- 0.0 (jitter = 0.0)\t7.8", (100, None, {"images/sec": 12.3, "loss": 7.8})),
    ("938/938 [====] - 3s 3ms/step - loss: 0.25 - accuracy: 0.9", (938, 938, {"loss": 0.25, "accuracy": 0.9})),
    (
        "\x1b[1m469/938\x1b[0m \x1b[32m━━━━━\x1b[0m\x1b[37m━━━\x1b[0m \x1b[1m1s\x1b[0m 3ms/step - loss: 0.4",
        (469, 938, {"loss": 0.4}),
    ),
    (" 32%|███▏   | 320/1000 [00:10<00:21, 31.2it/s, loss=0.25]", (320, 1000, {"loss": 0.25})),
    ("Epoch 0:  45%|████▌  | 422/938 [00:05<00:06, 80.1it/s, v_num=0, loss=0.25]", (422, None, {"loss": 0.25})),
    ("Epoch 2/5:  50%|██   | 5/10 [00:05<00:06, 80.1it/s]", (15, 50, {})),
    ("Epoch 3/9 ━━━━━━━━━ 422/938 0:00:05 • 0:00:06 80.12it/s train_loss: 0.25", (3236, 9380, {"train_loss": 0.25})),
    ("  1%|▏  | 5.00k/1.00M [00:05<00:06, 80.1it/s]", (5000, 1000000, {})),
    ("loss: 0.3", (None, None, {"loss": 0.3})),
]  # fmt: skip


@pytest.mark.parametrize(("line", "row"), KNOWN, ids=[line[:30].strip() for line, _ in KNOWN])
def test_a_line_in_a_known_form_is_understood(line: str, row: Said) -> None:
    found = LineReader().read(line)
    assert found is not None
    assert (found.row.step, found.row.total, found.row.metrics) == row


MEANINGLESS = [
    "",
    "starting on port 8080",
    "Downloading http://example.org:8080/x took 3 seconds",
    "Downloading data: 100%|██████████| 548/548 [00:00<00:00, 1.2MB/s]",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 31.2it/s]",
    "GPU 0: 45 C, 250 W, error count 0",
    "Epoch 2/5",
    "{'loss': ",
    '{"loss": [',
    '["step", 3]',
    "loss went down again",
    "step",
    "batch_size=64",
    "%|%|%| step",
]


@pytest.mark.parametrize("line", MEANINGLESS)
def test_a_line_about_something_else_is_passed_over(line: str) -> None:
    assert LineReader().read(line) is None


def test_keras_counts_on_over_epochs() -> None:
    reader = LineReader()
    for line in ("Epoch 1/5", "10/10 - 1s - 3ms/step - loss: 0.9", "Epoch 2/5"):
        reader.read(line)
    found = reader.read("4/10 [=>..] - ETA: 1s - loss: 0.8")
    assert found is not None
    assert (found.row.step, found.row.total) == (14, 50)


def test_lightning_counts_epochs_from_zero() -> None:
    reader = LineReader()
    bar = "Epoch {}:  50%|██   | 5/10 [00:05<00:06, 80.1it/s, loss=0.5]"
    steps = [found.row.step for found in (reader.read(bar.format(epoch)) for epoch in range(3)) if found]
    assert steps == [5, 15, 25]


def test_values_on_a_line_of_their_own_belong_to_the_step_above() -> None:
    reader = LineReader()
    reader.read(" 32%|███▏   | 320/1000 [00:10<00:21, 31.2it/s]")
    found = reader.read("{'loss': 0.5, 'epoch': 0.32}")
    assert found is not None
    assert (found.row.step, found.row.total) == (320, 1000)


def test_a_shorter_bar_without_a_name_is_a_validation() -> None:
    reader = LineReader()
    reader.read(" 32%|███▏   | 320/1000 [00:10<00:21, 31.2it/s]")
    assert reader.read(" 10%|█  | 1/10 [00:00<00:01,  9.1it/s]") is None


def test_a_pattern_of_the_user_s_replaces_the_built_in_ones() -> None:
    reader = LineReader([r"it (?P<step>\d+) of (?P<total>\d+)(?: cost (?P<cost>\S+))?"])
    found = reader.read("x it 5 of 9 cost 0.5 y")
    assert found is not None
    assert found.row == (5, 9, {"cost": 0.5}, None)
    found = reader.read("it 6 of 9")
    assert found is not None
    assert found.row.metrics == {}
    assert reader.read("step=3 loss=0.2") is None


WRONG = [
    (r"step (\d+)", "names nothing to read"),
    (r"step (?P<step>\d+", "no regular expression: missing ), unterminated subpattern at character 6"),
    (r"(?P<loss>(\d+)*)x", "takes too long"),
    (r"(?P<loss>(?:a|b+)+)x", "takes too long"),
    (r"(?P<loss>(?:a|a|a)*)b", "takes too long"),
    (r".*a.*a.*a.*a.*a(?P<loss>\d)", "takes too long"),
    (r"(?P<a>.*) (?P<b>.*) (?P<c>.*)x", "takes too long"),
]


@pytest.mark.parametrize(("pattern", "sentence"), WRONG, ids=[pattern for pattern, _ in WRONG])
def test_a_pattern_that_cannot_work_is_refused_with_a_sentence(pattern: str, sentence: str) -> None:
    with pytest.raises(UserError, match="The pattern") as caught:
        LineReader([pattern])
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    [
        r".*step=(?P<step>\d+).*loss=(?P<loss>\S+)",
        r"^\s*\[(?P<step>\d+)/(?P<total>\d+)\]\s+(?:\w+=\S+\s+)?loss=(?P<loss>[-+.\deE]+)",
        r"(?P<loss>\d+\.\d+)",
    ],
)
def test_common_forms_of_patterns_are_accepted(pattern: str) -> None:
    assert LineReader([pattern]).notices == []


def test_a_pattern_that_takes_too_long_on_real_lines_is_put_away(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = LineReader([r"(?P<loss>\d+)"])
    monkeypatch.setattr(reading_lines, "_SLOW_SECONDS", -1.0)
    for _ in range(4):
        reader.read("loss 3")
    assert len(reader.notices) == 1
    assert "fewer stars" in reader.notices[0]
    assert reader.read("loss 3") is None


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300)), st.booleans())
def test_no_line_breaks_a_reader(line: str | bytes, has_pattern: bool) -> None:
    reader = LineReader([r"(?P<step>\d+)\D+(?P<loss>\S+)"] if has_pattern else [])
    reader.read(line)


@given(
    st.lists(st.sampled_from([line for line, _ in KNOWN] + MEANINGLESS + ["nan", "1e999", "=", "{", "%|"]), max_size=6)
)
def test_no_mixture_of_lines_breaks_a_reader(parts: list[str]) -> None:
    reader = LineReader()
    for line in (*parts, " ".join(parts), "".join(parts)[::-1]):
        reader.read(line)


CHOICES = [
    (["lr", "val_loss", "train_loss", "accuracy"], "", "train_loss"),
    (["epoch", "accuracy"], "", "accuracy"),
    (["speed", "other"], "", "speed"),
    (["train/Loss", "x"], "loss", "train/Loss"),
    (["x"], "loss", ""),
    ([], "", ""),
]


@pytest.mark.parametrize(("names", "wanted", "chosen"), CHOICES)
def test_the_metric_that_counts_is_found_by_its_name(names: list[str], wanted: str, chosen: str) -> None:
    assert main_metric(names, wanted) == chosen


def test_the_goal_of_a_metric_is_inferred_from_its_name() -> None:
    assert [is_rising(name) for name in ("val_accuracy", "top1", "loss", "error", "something")] == [True, True] + [
        False
    ] * 3
