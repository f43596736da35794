"""Job specifications of a submission, as its manifests describe them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import msgspec

from sterna.errors import UserError
from sterna.kinds.loading import LoadedJobs, load, load_values
from sterna.model.job import JobSpec
from sterna.service.errors import MalformedError
from sterna.service.requests import Submission

SOURCE = "the request"
"""Name of the text in errors; the commands put the file's name in its place."""


def read_submission(submission: Submission) -> tuple[list[JobSpec], list[str]]:
    """Return the jobs of a submission, and notices about documents that are no jobs."""
    loaded = _load(submission)
    return [_complete(spec, submission) for spec in loaded.jobs], list(loaded.notices)


def _load(submission: Submission) -> LoadedJobs:
    try:
        if not submission.is_json:
            return load(submission.body.decode(), SOURCE)
        value = msgspec.json.decode(submission.body)
        return load_values(value if isinstance(value, list) else [value], SOURCE)
    except UnicodeDecodeError:
        raise MalformedError("The body is not text in UTF-8.") from None
    except msgspec.DecodeError as error:
        raise MalformedError(f"The body is not JSON ({error}).") from None


def _complete(spec: JobSpec, submission: Submission) -> JobSpec:
    """Add the fields of the submission that hold for all its jobs; working folders are relative to its `cwd`."""
    cwd = submission.cwd
    if cwd and not cwd.startswith("/"):
        raise UserError(f"cwd '{cwd}' is not a full path; begin it with '/'.")
    replicas = spec.replicas
    if cwd:
        replicas = tuple(replace(each, working_dir=str(PurePosixPath(cwd, each.working_dir))) for each in spec.replicas)
    return replace(
        spec, replicas=replicas, user=submission.user or spec.user, category=submission.category or spec.category
    )
