"""Built-in speed-up curves, and those that users bring."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sterna.errors import UserError
from sterna.workloads.curves import load_speedups
from sterna.workloads.profiles import DRAWN, PROFILES, curve_of
from tests.published import large_file

WriteFile = Callable[[str | bytes], Path]

VODA = ("vgg16", "resnet50", "inceptionv3", "transformer")
MEASURED_ON = {
    "A100": ("bert", "gpt2", "deepspeech2", "inception3", "resnet50_cifar10"),
    "T4": ("yolov3", "cifar10", "imagenet", "ncf"),
}


def test_voda_s_measurements_are_as_published() -> None:
    assert curve_of("vgg16") == (1, 1.785, 2.5, 3.125)
    assert curve_of("resnet50") == (1, 1.857, 2.6, 3.25)
    assert curve_of("inceptionv3") == (1, 1.842, 2.692, 3.5)
    assert curve_of("transformer") == (1, 1.657, 2.148, 2.521)


def test_between_measured_counts_the_curve_is_straight() -> None:
    curve = PROFILES["deepspeech2"]
    assert len(curve) == 64
    assert curve[4:7] == pytest.approx((3.6195, 3.956, 4.2925))


@pytest.mark.parametrize("model", sorted(set(PROFILES) - set(VODA)))
def test_levelled_curves_start_at_one_and_are_monotone_and_concave(model: str) -> None:
    gains = np.diff(PROFILES[model], prepend=0.0)
    assert gains[0] == 1
    assert gains.min() > -1e-12
    assert np.diff(gains).max() < 1e-12


@pytest.mark.parametrize(
    ("device", "model"), [(device, model) for device, all_ in MEASURED_ON.items() for model in all_]
)
def test_levelled_curves_stay_with_the_measurement_where_it_was_concave(device: str, model: str) -> None:
    with open(large_file(f"profiles/elasticflow/throughputs_{device}/{model}.csv")) as file:
        header, *rows = csv.reader(file)
    largest = max((row for row in rows if row), key=lambda row: int(row[0]))
    rates = {int(count): float(rate or "nan") for count, rate in zip(header[1:], largest[1:], strict=True)}
    measured = {count: rate / rates[1] for count, rate in rates.items() if rate > 0}
    assert max(measured) == len(PROFILES[model])
    top = max(measured.values())
    assert max(PROFILES[model]) == pytest.approx(top, abs=0.001)
    assert PROFILES[model][3] == pytest.approx(measured[4], abs=0.1)


RUBICK = {"bert_a800": "bert", "gpt2_a800": "gpt2"} | {
    name: name for name in ("roberta", "t5", "vit", "llama7", "llama30")
}


@pytest.mark.parametrize("model", RUBICK)
def test_rubick_s_curves_follow_its_fastest_plan_at_each_count(model: str) -> None:
    fastest: dict[int, float] = {}
    with open(large_file(f"profiles/rubick/{RUBICK[model]}.csv")) as file:
        for row in csv.DictReader(file):
            count, seconds = sum(map(int, row["placement"])), float(row["iter_time"])
            fastest[count] = min(seconds, fastest.get(count, seconds))
    first = max(fastest, key=lambda count: 1 / (fastest[count] * count))  # highest speed per GPU
    curve = PROFILES[model]
    for count, seconds in fastest.items():
        if count >= first and seconds <= min(fastest[each] for each in fastest if each <= count):
            measured = first * fastest[first] / seconds
            assert curve[min(count, len(curve)) - 1] == pytest.approx(measured, rel=0.25)
    assert curve[-1] == pytest.approx(first * fastest[first] / min(fastest.values()), abs=0.002)


def test_profiles_drawn_for_a_request_still_gain_there() -> None:
    for model, requests in DRAWN.items():
        assert 1 <= requests.fewest <= requests.most
        gains = np.diff(PROFILES[model], prepend=0.0)
        assert gains[requests.most - 1] > 0
        assert 2 * requests.most <= len(gains) or gains[requests.most :].max() < 1e-9


@pytest.mark.parametrize("spelling", ["ResNet50", "resnet-50", "RESNET_50", " resnet 50 "])
def test_a_model_is_found_however_it_is_spelt(spelling: str) -> None:
    assert curve_of(spelling) == PROFILES["resnet50"]


def test_unknown_model_has_no_curve() -> None:
    assert curve_of("alexnet") is None
    assert curve_of("") is None


def test_the_user_s_own_curve_comes_first() -> None:
    assert curve_of("ResNet-50", own={"resnet50": (1.0, 2.0)}) == (1.0, 2.0)
    assert curve_of("bert", own={"resnet50": (1.0, 2.0)}) == PROFILES["bert"]


def test_speedups_of_any_unit_are_divided_by_the_first(write_file: WriteFile) -> None:
    path = write_file("resnet50: [1, 1.9, 2.7]\nmy-model: [100, 150, 120]\n50: [2]\n")
    assert load_speedups(path) == {"resnet50": (1.0, 1.9, 2.7), "my-model": (1.0, 1.5, 1.2), "50": (1.0,)}


CURVES_REFUSED = {
    "empty file": ("", ": found nothing, expected a line like 'resnet50: [1, 1.9, 2.7]' for each model."),
    "a list": ("- 1\n- 2\n", ": found '[1, 2]', expected a line like 'resnet50: [1, 1.9, 2.7]' for each model."),
    "not YAML": (
        "a: [1, 2\nb: 3\n",
        "line 2, column 2: this is not YAML (expected ',' or ']', but got ':'); expected a line",
    ),
    "control character": ("a: [1]\x01", ": this is not YAML; expected a line"),
    "empty list": ("a: []\n", ", model 'a': found nothing, expected speed-ups like [1, 1.9, 2.7]."),
    "a number": ("a: 3\n", ", model 'a': found '3', expected speed-ups like [1, 1.9, 2.7]."),
    "word": ("a: [1, fast]\n", ", model 'a': found 'fast' at 2 workers, expected a number above 0."),
    "boolean": ("a: [1, yes]\n", ", model 'a': found 'True' at 2 workers, expected a number above 0."),
    "zero": ("b: [1]\na: [0, 1]\n", ", model 'a': found '0' at 1 worker, expected a number above 0."),
    "NaN": ("a: [1, .nan]\n", ", model 'a': found 'nan' at 2 workers, expected a number above 0."),
    "infinity": ("a: [1, .inf]\n", ", model 'a': found 'inf' at 2 workers, expected a number above 0."),
    "beyond floats": (f"a: [1, 1{'0' * 400}]\n", ", model 'a': found '1000"),
    "a model twice": ("a: [1]\nb: [1]\na: [1, 2]\n", ", line 3: the model 'a' is there already, in line 1; remove"),
    "a model twice in a line": ("{a: [1], a: [1, 2]}", ", line 1: the model 'a' is there already, in line 1"),
    "two spellings": (
        "ResNet-50: [1]\nresnet50: [1]\n",
        ": 'resnet50' and 'ResNet-50' are spellings of one model; remove",
    ),
}


@pytest.mark.parametrize("case", CURVES_REFUSED)
def test_malformed_curves_are_refused_by_file_and_model(write_file: WriteFile, case: str) -> None:
    contents, message = CURVES_REFUSED[case]
    path = write_file(contents)
    with pytest.raises(UserError) as refusal:
        load_speedups(path)
    assert str(refusal.value).startswith(str(path))
    assert message in str(refusal.value)


def test_missing_curves_are_refused() -> None:
    with pytest.raises(UserError, match="there is no such file"):
        load_speedups("nowhere.yaml")


def test_ratios_of_speedups_are_numbers(write_file: WriteFile) -> None:
    assert all(math.isfinite(value) for value in load_speedups(write_file("a: [1.0e-11, 1.0e+11]\n"))["a"])
