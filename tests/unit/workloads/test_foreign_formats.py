"""One small file of each published format: what becomes of its columns, and of what cannot be replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import UserError
from sterna.workloads.load import KINDS, load_trace
from sterna.workloads.trace import Trace

WriteFile = Callable[[str | bytes], Path]


def an_attempt(
    start: str | None = "2017-10-07 01:00:00", end: str | None = "2017-10-07 01:01:00", gpus: int = 1
) -> Any:
    machines = [{"ip": f"m{machine}", "gpus": [f"gpu{gpu}" for gpu in range(gpus)]} for machine in range(2)]
    return {"start_time": start, "end_time": end, "detail": machines}


def a_philly_job(jobid: str = "application_1", submitted: str = "2017-10-07 00:59:00", **changes: Any) -> Any:
    job = {"status": "Pass", "vc": "ee9e8c", "jobid": jobid, "submitted_time": submitted, "user": "ce2f4c"}
    return job | {"attempts": [an_attempt()]} | changes


def philly(write_file: WriteFile, *jobs: Any) -> Trace:
    return load_trace(write_file(json.dumps(jobs, indent=1)))


def test_a_philly_job_lasts_as_long_as_all_its_attempts(write_file: WriteFile) -> None:
    attempts = [an_attempt(gpus=8), an_attempt("2017-10-07 02:00:00", "2017-10-07 03:00:00", gpus=4)]
    trace = philly(write_file, a_philly_job(attempts=attempts))
    assert trace.kind == "philly-json"
    assert trace.duration_seconds.tolist() == [3660.0]
    assert trace.workers.tolist() == [8]
    assert (trace.name, trace.user, trace.pool) == (("application_1",), ("ce2f4c",), ("ee9e8c",))
    assert trace.notices == ("submit times count from the first job, at 2017-10-07 00:59:00 in the file.",)


def test_a_philly_log_tells_which_jobs_failed_or_were_killed(write_file: WriteFile) -> None:
    statuses = ("Pass", "Killed", "Failed")
    trace = philly(write_file, *(a_philly_job(jobid=status, status=status) for status in statuses))
    assert dict(zip(trace.name, trace.ended_early.tolist(), strict=True)) == {
        "Pass": False,
        "Killed": True,
        "Failed": True,
    }


def test_a_philly_attempt_without_times_counts_nothing(write_file: WriteFile) -> None:
    trace = philly(write_file, a_philly_job(attempts=[an_attempt("None", None), an_attempt()]))
    assert trace.duration_seconds.tolist() == [60.0]


def test_a_philly_job_has_the_devices_of_the_last_attempt_that_names_any(write_file: WriteFile) -> None:
    trace = philly(write_file, a_philly_job(attempts=[an_attempt(gpus=2), an_attempt() | {"detail": []}]))
    assert trace.workers.tolist() == [4]


def test_philly_jobs_that_never_started_or_still_run_are_left_out(write_file: WriteFile) -> None:
    trace = philly(
        write_file,
        a_philly_job("never", attempts=[]),
        a_philly_job("running", attempts=[an_attempt(), an_attempt(end="None")]),
        a_philly_job("done", submitted="2017-10-08 00:00:00"),
        a_philly_job("lost", submitted="None"),
    )
    assert trace.name == ("done",)
    assert trace.submit_seconds.tolist() == [0.0]
    assert trace.notices[:3] == (
        "left out 1 job without attempts.",
        "left out 1 job without a submission time.",
        "left out 1 job without a duration.",
    )


PHILLY_REFUSED: dict[str, tuple[Any, str]] = {
    "a job that is a number": ([a_philly_job(), 3], "job 2: found '3' in the list, expected an object for each job."),
    "a job without an id": ([{"attempts": [], "submitted_time": ""}], "job 1: 'jobid' is missing"),
    "attempts that are text": (
        [a_philly_job(attempts="x")],
        "job 1: found 'x' in 'attempts', expected a list of objects.",
    ),
    "a date in words": ([a_philly_job(), a_philly_job(submitted="today")], "job 2: found 'today' in 'submitted_time'"),
    "a day that never was": ([a_philly_job(submitted="2017-02-30 00:00:00")], "found '2017-02-30 00:00:00' in 'subm"),
    "an attempt's end in words": ([a_philly_job(attempts=[an_attempt(end="now")])], "job 1: found 'now' in 'end_time'"),
    "an object": ({"jobs": []}, "found an object, expected a list of jobs"),
    "an empty list": ([], "the trace has no jobs."),
}


@pytest.mark.parametrize("case", PHILLY_REFUSED)
def test_philly_json_refuses(write_file: WriteFile, case: str) -> None:
    contents, message = PHILLY_REFUSED[case]
    with pytest.raises(UserError) as refusal:
        load_trace(write_file(json.dumps(contents)))
    assert message in str(refusal.value)


def test_philly_csv_numbers_its_jobs_and_counts_from_the_first(write_file: WriteFile) -> None:
    trace = load_trace(
        write_file(
            "timestamp,duration,num_gpus,gpu_time,cluster\n"
            "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
            "2017-10-09 06:01:55,10.0,8,80.0,6214e9\n\n"
        )
    )
    assert (trace.kind, trace.name, trace.pool) == ("philly-csv", ("job-00002", "job-00001"), ("6214e9", "11cb48"))
    assert trace.submit_seconds.tolist() == [0.0, 3600.0]
    assert trace.workers.tolist() == [8, 1]
    assert trace.devices_per_worker.tolist() == [1.0, 1.0]


def test_helios_jobs_without_gpus_are_left_out(write_file: WriteFile) -> None:
    trace = load_trace(
        write_file(
            "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
            "1,uA,vcX,train,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
            "2,uB,vcX,prep,0,16,1,COMPLETED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
            "3,uB,vcY,eval,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:28,0,0\n"
        )
    )
    assert (trace.kind, trace.name, trace.workers.tolist()) == ("helios", ("1",), [4])
    assert (trace.user, trace.pool, trace.category) == (("uA",), ("vcX",), ("train",))
    assert trace.notices == (
        "left out 1 job without GPUs.",
        "left out 1 job without a duration.",
        "submit times count from the first job, at 2020-06-09 18:41:27 in the file.",
    )


def test_a_helios_log_without_job_names_is_read_too(write_file: WriteFile) -> None:
    trace = load_trace(
        write_file("job_id,user,vc,gpu_num,submit_time,duration\n1,uA,vcX,4,2020-06-09 18:41:27,249\n"),
    )
    assert trace.category == ("",)


def test_a_helios_slice_counts_microseconds(write_file: WriteFile) -> None:
    trace = load_trace(
        write_file(
            "# per-VC pool sizes: vcvGl=20\n"
            "job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status\n"
            "765563,uH3om,vcvGl,finetune,5835000000,128,,16,24.0,24.0,CANCELED\n"
            "765565,uJjMX,vcvGl,finetune,5842000000,16,,2,46520.0,46520.0,CANCELED\n"
        )
    )
    assert trace.kind == "helios-slice"
    assert trace.submit_seconds.tolist() == [0.0, 7.0]
    assert trace.workers.tolist() == [128, 16]
    assert (trace.pool[0], trace.category[0]) == ("vcvGl", "finetune")
    assert trace.status == ("CANCELED", "CANCELED")
    assert trace.ended_early.all()


PAI_TASKS = """\
a,worker,2.0,Terminated,100.0,160.0,600.0,29.3,50.0,MISC
a,ps,1.0,Terminated,100.0,160.0,600.0,29.3,,
b,tensorflow,1.0,Running,120.0,,600.0,29.3,100.0,T4
c,worker,3.0,Failed,130.0,140.0,600.0,29.3,800.0,V100
c,chief,1.0,Failed,130.0,140.0,600.0,29.3,150.0,V100
d,worker,4.0,Waiting,,,600.0,29.3,25.0,T4
"""
PAI_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"


@pytest.mark.parametrize("header", ["", PAI_HEADER])
def test_each_pai_task_with_gpus_is_a_job_with_or_without_a_header_line(write_file: WriteFile, header: str) -> None:
    trace = load_trace(write_file(header + PAI_TASKS))
    assert (trace.kind, trace.name) == ("alibaba-tasks", ("a", "c", "c-2"))
    assert trace.submit_seconds.tolist() == [0.0, 30.0, 30.0]
    assert trace.duration_seconds.tolist() == [60.0, 10.0, 10.0]
    assert trace.workers.tolist() == [2, 3, 1]
    assert trace.devices_per_worker.tolist() == [0.5, 8.0, 2.0]
    assert trace.category == ("worker", "worker", "chief")
    assert trace.notices == (
        "left out 1 job without GPUs.",
        "left out 1 job without a submission time.",
        "left out 1 job without a duration.",
        "rounded the GPUs per worker of 1 job up to a whole number.",
        "renamed 1 job whose id had occurred before, e.g. 'c' to 'c-2'.",
        "submit times count from the first job, at 100 s in the file.",
    )


def test_pai_s_job_table_is_refused_because_it_has_no_gpus(write_file: WriteFile) -> None:
    with pytest.raises(UserError, match=r"give pai_task_table\.csv"):
        load_trace(write_file("4b3f,8cb3,5854,Terminated,4550879.0,4551416.0\n"))


def test_pai_s_simulator_counts_gpus_per_instance(write_file: WriteFile) -> None:
    trace = load_trace(
        write_file(
            "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user,group,user_dur\n"
            "1,20,0,6,0.25,MISC,600,u1,g1,580\n2,1,5,6,0,CPU,600,u1,g1,580\n3,1,9,6,2,T4,60,u2,g2,\n"
        )
    )
    assert (trace.kind, trace.name) == ("alibaba-jobs", ("1", "3"))
    assert trace.workers.tolist() == [20, 1]
    assert trace.devices_per_worker.tolist() == [0.25, 2.0]
    assert (trace.user, trace.category) == (("u1", "u2"), ("g1", "g2"))
    assert trace.notices == ("left out 1 job without GPUs.",)


def test_itp_jobs_keep_their_ids(write_file: WriteFile) -> None:
    trace = load_trace(write_file("job_id,submission_time,duration,num_gpu\nx-1,5810,288476,16\nx-0,5810,9,1\n"))
    assert (trace.kind, trace.name) == ("itp", ("x-0", "x-1"))
    assert trace.notices == ("submit times count from the first job, at 5810 s in the file.",)


def test_bench_jobs_are_numbered_in_the_order_of_the_file(write_file: WriteFile) -> None:
    trace = load_trace(write_file("submission_time,num_gpu,duration\n0,16,288476\n3,4,7\n3,2,8\n"))
    assert (trace.kind, trace.name) == ("bench", ("job-00001", "job-00002", "job-00003"))
    assert (trace.workers.tolist(), trace.notices) == ([16, 4, 2], ())


def test_tiresias_jobs_name_their_model(write_file: WriteFile) -> None:
    trace = load_trace(
        write_file(
            "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n0,1,0,606,vgg19,164,30\r\n1,8,30,133,vgg11,147,23\r\n"
        )
    )
    assert (trace.kind, trace.model) == ("tiresias", ("vgg19", "vgg11"))
    assert trace.category == trace.model


def test_a_nameless_column_is_not_taken_for_one_that_the_format_lacks(write_file: WriteFile) -> None:
    trace = load_trace(write_file(",submission_time,num_gpu,duration\nx,0,16,10\n"))
    assert (trace.kind, trace.user, trace.model) == ("bench", ("",), ("",))


def test_a_repeated_id_gets_the_next_number_that_is_free(write_file: WriteFile) -> None:
    rows = "".join(f"{name},0,1,1\n" for name in ("a", "a", "a-2", "a", "b", "a-2"))
    trace = load_trace(write_file("job_id,submission_time,duration,num_gpu\n" + rows))
    assert trace.name == ("a", "a-2", "a-2-2", "a-3", "a-4", "b")
    assert trace.notices == ("renamed 3 jobs whose id had occurred before, e.g. 'a' to 'a-3'.",)


def test_jobs_without_a_duration_are_counted_in_one_notice(write_file: WriteFile) -> None:
    rows = "".join(f"0,1,{duration}\n" for duration in ("", "0", "None", "nan", "5"))
    assert load_trace(write_file("submission_time,num_gpu,duration\n" + rows)).notices == (
        "left out 4 jobs without a duration.",
    )


def test_trace_without_usable_rows_is_rejected_with_reasons(write_file: WriteFile) -> None:
    with pytest.raises(UserError, match="no jobs to replay; left out 1 job without GPUs"):
        load_trace(write_file("submission_time,num_gpu,duration\n0,0,5\n"))


def test_the_kind_can_be_given_instead_of_detected(write_file: WriteFile) -> None:
    itp = write_file("job_id,submission_time,duration,num_gpu\nx,0,5,16\n")
    assert load_trace(itp).name == ("x",)
    assert load_trace(itp, kind="bench").name == ("job-00001",)


def test_the_known_kinds_are_listed() -> None:
    assert {"native", "philly-json", "philly-csv", "helios", "alibaba-tasks", "itp", "bench", "tiresias"} <= set(KINDS)
