"""Errors in files: one sentence with the position, the value found and the value expected."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.errors import UserError
from sterna.workloads.domain import DEVICES
from sterna.workloads.load import KINDS, load_trace
from sterna.workloads.text import unreadable

WriteFile = Callable[[str | bytes], Path]

HEADER = "job,submit_s,workers,duration_s"
BOUNDED = f"{HEADER},min_workers,max_workers,gpus_per_worker"


def native(*lines: str, header: str = HEADER) -> str:
    return "\n".join([header, "fine,0,1,60" + ",1,1,1" * (header == BOUNDED), *lines]) + "\n"


def a_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("pai_task_table.csv"))
    return out.getvalue()


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty file": ("", ": the file is empty; expected a header line and one line per job."),
    "comments only": ("# nothing here\n\n", ": the file is empty; expected a header line and one line per job."),
    "header only": (f"{HEADER}\n", ": the trace has no jobs; add a line for each below the header."),
    "binary": (b"job,\n\x00\x01", ", line 2: found binary data, expected text in UTF-8; give a CSV or JSON file."),
    "not UTF-8": (b"job,submit_s\n\xe9,1\n", ", line 2: found the byte 0xe9, expected UTF-8; save it as UTF-8."),
    "UTF-16": ("job,submit_s\n".encode("utf-16"), ": the text is UTF-16; save it as UTF-8."),
    "gzip cut off": (gzip.compress(b"job" * 99)[:-9], ": the gzip data is damaged or cut off; fetch the file again."),
    "tar": (a_tar(), ": this is a tar archive; unpack it (tar -xf) and give one of its files."),
    "quote left open": (native('"b,0,1,60'), ", line 3: this is not CSV (unexpected end of data); check the quotes."),
    "semicolons": (
        "job;submit_s\na;1\n",
        ", line 1: the columns are separated by semicolons; separate them by commas.",
    ),
    "tabs": ("job\tsubmit_s\na\t1\n", ", line 1: the columns are separated by tabs; separate them by commas."),
    "unknown format": (
        "colour,taste\nred,sour\n",
        f", line 1: found the columns colour, taste, which are those of no known format ({', '.join(KINDS)}); "
        "convert it to native, which needs job, submit_s, workers, duration_s.",
    ),
    "column misspelt": (
        "# mine\njob,submit,workers,duration_s\na,0,1,60\n",
        ", line 2: found the columns job, submit, workers, duration_s, which are those of no known format "
        f"({', '.join(KINDS)}); native needs 'submit_s' as well; for 'submit', did you mean 'submit_s'?",
    ),
    "underscore in a number": (
        native("a,1_000,1,60"),
        ", line 3, column 'submit_s': found '1_000', expected a number of at least 0.",
    ),
    "digit of another script": (
        native("a,0,1,٣"),
        ", line 3, column 'duration_s': found '٣', expected a number above 0.",
    ),
    "column twice": (f"{HEADER},job\na,0,1,5,a\n", ", line 1: the column 'job' is there twice; remove one."),
    "too few fields": (
        native("b,0,1"),
        ", line 3: found 3 fields, expected 4: job, submit_s, workers, duration_s.",
    ),
    "too many fields": (
        native("# note", "b,0,1,60,9"),
        ", line 4: found 5 fields, expected 4: job, submit_s, workers, duration_s.",
    ),
    "one field": (native("b"), ", line 3: found 1 field, expected 4: job, submit_s, workers, duration_s."),
    "word for a number": (
        native("b,soon,1,60"),
        ", line 3, column 'submit_s': found 'soon', expected a number of at least 0.",
    ),
    "nothing for a number": (
        native("b,,1,60"),
        ", line 3, column 'submit_s': found nothing, expected a number of at least 0.",
    ),
    "NaN": (native("b,0,1,nan"), ", line 3, column 'duration_s': found 'nan', expected a number above 0."),
    "infinity": (native("b,inf,1,9"), ", line 3, column 'submit_s': found 'inf', expected a number of at least 0."),
    "negative time": (native("b,-1,1,9"), ", line 3, column 'submit_s': found '-1', expected a number of at least 0."),
    "zero workers": (
        native("b,0,0,9"),
        ", line 3, column 'workers': found '0', expected a whole number of at least 1.",
    ),
    "fractional workers": (
        native("b,0,1.5,9"),
        ", line 3, column 'workers': found '1.5', expected a whole number of at least 1.",
    ),
    "absurdly many workers": (
        native("b,0,1e300,9"),
        ", line 3, column 'workers': found '1e300', expected a whole number of at most 1e9.",
    ),
    "a duration that cannot be added up": (
        native("b,0,1,1e308"),
        ", line 3, column 'duration_s': found '1e308', expected a number of at most 1e15.",
    ),
    "a submission after the end of time": (
        native("b,1e300,1,9"),
        ", line 3, column 'submit_s': found '1e300', expected a number of at most 1e15.",
    ),
    "a worker of a whole city": (
        native("b,0,1,9,1,1,1e12", header=BOUNDED),
        ", line 3, column 'gpus_per_worker': found '1e12', expected a number of at most 1e6.",
    ),
    "zero duration": (native("b,0,1,0"), ", line 3, column 'duration_s': found '0', expected a number above 0."),
    "negative duration": (native("b,0,1,-9"), ", line 3, column 'duration_s': found '-9', expected a number above 0."),
    "bounds crossed": (
        native("b,0,2,9,3,2,1", header=BOUNDED),
        ", line 3: min_workers 3 is above max_workers 2; make it at most as large.",
    ),
    "workers out of bounds": (
        native("b,0,8,9,1,4,1", header=BOUNDED),
        ", line 3: workers 8 is not between min_workers 1 and max_workers 4; widen the bounds or change workers.",
    ),
    "NaN for a bound": (
        native("b,0,8,9,nan,8,1", header=BOUNDED),
        ", line 3, column 'min_workers': found 'nan', expected a whole number of at least 1.",
    ),
    "one and a half devices": (
        native("b,0,1,9,1,1,1.5", header=BOUNDED),
        f", line 3, column 'gpus_per_worker': found '1.5', expected {DEVICES.words}.",
    ),
    "no devices": (
        native("b,0,1,9,1,1,0", header=BOUNDED),
        f", line 3, column 'gpus_per_worker': found '0', expected {DEVICES.words}.",
    ),
    "name taken": (
        native("b,0,1,9", "# comment", "fine,1,1,9"),
        ", line 5, column 'job': the name 'fine' is taken by line 2; give each job its own name.",
    ),
    "no name": (
        native(",0,1,9"),
        ", line 3, column 'job': found no name, expected one that is not empty and does not start with #.",
    ),
    "JSON broken off": (
        '[\n {"jobid": ',
        ", line 2, column 12: this is not JSON (Expecting value); "
        "expected a list of jobs as Philly's cluster_job_log has.",
    ),
    "foreign: a number missing its sense": (
        "submission_time,num_gpu,duration\n0,few,10\n",
        ", line 2, column 'num_gpu': found 'few', expected a whole number of at least 0.",
    ),
    "foreign: half a GPU where whole ones are counted": (
        "submission_time,num_gpu,duration\n0,0.5,10\n",
        ", line 2, column 'num_gpu': found '0.5', expected a whole number of at least 0.",
    ),
    "foreign: infinite duration": (
        "submission_time,num_gpu,duration\n0,1,inf\n",
        ", line 2, column 'duration': found 'inf', expected a number of at least 0.",
    ),
    "foreign: a duration that cannot be added up": (
        "submission_time,num_gpu,duration\n0,1,1e308\n",
        ", line 2, column 'duration': found '1e308', expected a number of at most 1e15.",
    ),
    "foreign: date out of the calendar": (
        "timestamp,duration,num_gpus,cluster\n2017-13-09 07:01:55,66.0,1,x\n",
        ", line 2, column 'timestamp': found '2017-13-09 07:01:55', expected a date like 2017-10-09 07:01:55.",
    ),
    "foreign: date of another fashion": (
        "timestamp,duration,num_gpus,cluster\n09/10/2017,66.0,1,x\n",
        ", line 2, column 'timestamp': found '09/10/2017', expected a date like 2017-10-09 07:01:55.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_malformed_file_is_refused_in_one_sentence(write_file: WriteFile, case: str) -> None:
    contents, message = REFUSED[case]
    path = write_file(contents)
    with pytest.raises(UserError) as refusal:
        load_trace(path)
    assert str(refusal.value) == f"{path}{message}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        load_trace(tmp_path / "nope.csv")
    assert str(refusal.value) == f"{tmp_path}/nope.csv: there is no such file; check the path."


def test_a_folder_is_not_a_trace(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is a folder; give one of the files in it"):
        load_trace(tmp_path)


def test_an_impossible_path_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be opened"):
        load_trace("a\0b")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(13, "Permission denied"),
            "t.csv: you may not read or write this file; change its permissions",
        ),
        (OSError(5, "Input/output error"), "t.csv: cannot be opened (Input/output error); choose another file."),
    ],
)
def test_system_errors_become_user_errors(error: OSError, message: str) -> None:
    assert message in str(unreadable("t.csv", error))


def test_an_unknown_kind_is_refused_before_the_file_is_opened() -> None:
    with pytest.raises(UserError) as refusal:
        load_trace("nowhere.csv", kind="natve")
    assert str(refusal.value) == "'natve' is not a format of traces; did you mean 'native'?"


def test_given_kind_names_the_columns_it_needs(write_file: WriteFile) -> None:
    path = write_file("submission_time,num_gpus,duration\n0,1,1\n")
    with pytest.raises(UserError) as refusal:
        load_trace(path, kind="bench")
    assert str(refusal.value) == (
        f"{path}, line 1: found the columns submission_time, num_gpus, duration; bench needs 'num_gpu' as well; "
        "for 'num_gpus', did you mean 'num_gpu'?"
    )
