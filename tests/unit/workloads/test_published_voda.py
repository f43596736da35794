"""Voda's 24 jobs as they ship in the package, and arrivals like them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sterna.backends.simulated.workload import workload_of
from sterna.workloads.profiles import PROFILES
from sterna.workloads.published import voda

WORK = {"inceptionv3": 4000.0, "resnet50": 1500.0, "vgg16": 1400.0, "transformer": 2500.0}


def test_there_are_six_jobs_of_each_of_four_models() -> None:
    assert Counter(job.model for job in voda.jobs()) == dict.fromkeys(voda.EPOCHS, 6)
    times = [job.at_seconds for job in voda.jobs()]
    assert times[0] == 0
    assert times == sorted(times)


def test_what_each_model_held_is_known() -> None:
    assert voda.device_seconds() == {"inceptionv3": 4973, "resnet50": 1657, "vgg16": 1524, "transformer": 3004}


def test_a_trace_has_the_work_it_was_given() -> None:
    trace = voda.trace_of(voda.jobs(), WORK)
    asked = [PROFILES[job.model][1] for job in voda.jobs()]
    assert trace.duration_seconds * asked == pytest.approx([WORK[job.model] for job in voda.jobs()])


def test_what_a_curve_is_levelled_by_never_makes_a_job_shorter() -> None:
    """InceptionV3 gained a trifle more from its third worker than from its second; the engine's curves are concave."""
    workload = workload_of(voda.trace_of(voda.jobs(), WORK))
    given = np.array([WORK[job.model] for job in voda.jobs()])
    assert (workload.work >= given - 1e-6).all()
    assert (workload.work <= 1.005 * given).all()
    assert set(workload.minimum.tolist()) == {1}
    assert set(workload.maximum.tolist()) == {4}


def test_unseen_arrivals_are_the_same_jobs_at_other_times() -> None:
    first, again, other = voda.unseen_arrivals(3), voda.unseen_arrivals(3), voda.unseen_arrivals(4)
    assert first == again
    assert first != other
    assert Counter(job.model for job in first) == Counter(job.model for job in voda.jobs())
    assert len({job.name for job in first}) == 24


def test_unseen_arrivals_have_the_published_mean_gap() -> None:
    gaps = [np.diff([job.at_seconds for job in voda.unseen_arrivals(seed)]).mean() for seed in range(200)]
    assert np.mean(gaps) == pytest.approx(656 / 23, rel=0.05)
