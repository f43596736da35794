"""A process that is asked to stop saves between two steps, reports it, and ends; no file is torn, no call hangs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from sterna.progress.reader import ProgressReader
from tests.unit.agent.scripts import environment, lines, said, script, tell, until

TRAINING = """
    import time
    from sterna import agent

    @agent.on_stop
    def save():
        open("kept", "w").write(str(step))
        print("saved", flush=True)

    step = 0
    print("ready", flush=True)
    while True:
        time.sleep(0.005)
        step += 1
        agent.report(step, 10**6, loss=1 / step)
"""


def test_sigterm_saves_between_steps_and_ends_with_143(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with script(TRAINING, environment(folder), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    step = int((tmp_path / "kept").read_text())
    record = json.loads((folder / "saved.json").read_text())
    assert record["step"] == step
    assert record["at"] > 1e9
    assert lines(folder)[-1]["saved"]
    assert lines(folder)[-1]["step"] == step


@pytest.mark.parametrize("call", ["agent.on_stop(print)", "agent.should_stop()", "agent.report(1)"])
def test_process_that_answers_stop_requests_is_registered(tmp_path: Path, call: str) -> None:
    folder = tmp_path / "r"
    with script(f"from sterna import agent; {call}; {call}", environment(folder), tmp_path) as process:
        assert process.wait(30) == 0
    reader = ProgressReader(folder)
    assert not reader.has_registered
    reader.poll()
    assert reader.has_registered is (call != "agent.report(1)")
    reader.close()


def test_sigterm_saves_without_sterna_too(tmp_path: Path) -> None:
    with script(TRAINING, environment(None), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert (tmp_path / "kept").exists()


def test_more_signals_do_not_disturb_a_save(tmp_path: Path) -> None:
    code = """
        import time
        from sterna import agent

        def save():
            print("saving", flush=True)
            input()
            open("kept", "w").write("whole")

        agent.on_stop(save)
        print("ready", flush=True)
        while not agent.should_stop():
            time.sleep(0.005)
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        said(process, "saving")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        tell(process)
        assert process.wait(30) == 143
    assert (tmp_path / "kept").read_text() == "whole"


def test_a_save_that_fails_claims_nothing_and_is_tried_again(tmp_path: Path) -> None:
    code = """
        import os, time
        from sterna import agent

        def save():
            if not os.path.exists("room"):
                print("failing", flush=True)
                raise OSError("no room")
            print("fine", flush=True)

        agent.on_stop(save)
        print("ready", flush=True)
        while True:
            time.sleep(0.005)
            agent.report(1)
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        said(process, "failing")
        assert not (tmp_path / "r" / "saved.json").exists()
        (tmp_path / "room").touch()
        assert process.wait(30) == 143
        assert process.stderr is not None
        assert "no room" in process.stderr.read()
    assert (tmp_path / "r" / "saved.json").exists()


def test_script_may_poll_should_stop_and_report_its_save(tmp_path: Path) -> None:
    code = """
        import time
        from sterna import agent
        agent.should_stop()
        agent.report(41)
        print("ready", flush=True)
        while not agent.should_stop():
            time.sleep(0.005)
        agent.saved(42)
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert json.loads((tmp_path / "r" / "saved.json").read_text())["step"] == 42


def test_a_script_that_only_reports_ends_at_sigterm_as_ever(tmp_path: Path) -> None:
    code = """
        import time
        from sterna import agent
        while True:
            agent.report(1)
            print("ready", flush=True)
            time.sleep(0.005)
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_without_sterna_a_second_sigterm_ends_a_process_that_hangs(tmp_path: Path) -> None:
    code = """
        import time
        from sterna import agent
        agent.on_stop(lambda: None)
        print("ready", flush=True)
        while True:
            time.sleep(0.005)
    """
    with script(code, environment(None), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        until(lambda: _has_no_pending(process.pid))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def _has_no_pending(pid: int) -> bool:
    """Has the process taken all signals that were sent to it, and slept again since?"""
    status = Path(f"/proc/{pid}/status").read_text()
    pending = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return all(int(each, 16) == 0 for each in pending) and "(sleeping)" in status


def test_a_forked_child_can_still_be_terminated(tmp_path: Path) -> None:
    code = """
        import multiprocessing, os, signal, time
        from sterna import agent

        def work():
            print("ready", flush=True)
            while True:
                time.sleep(0.005)
                agent.report(1)

        agent.on_stop(lambda: open("wrong", "w"))
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        input()
        child.terminate()
        child.join(30)
        raise SystemExit(child.exitcode != -signal.SIGTERM)
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process:
        said(process, "ready")
        tell(process)
        assert process.wait(30) == 0
    assert not (tmp_path / "wrong").exists()


def test_threads_of_a_script_do_not_keep_a_process_that_has_saved(tmp_path: Path) -> None:
    code = """
        import sterna.agent.stopping as stopping
        stopping._LINGER_SECONDS = 0.1
        import threading, time
        from sterna import agent
        threading.Thread(target=lambda: time.sleep(1000)).start()
        agent.on_stop(lambda: None)
        print("ready", flush=True)
        while True:
            time.sleep(0.005)
            agent.report(1)
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143


def test_saving_from_another_thread_ends_the_whole_process(tmp_path: Path) -> None:
    code = """
        import threading, time
        from sterna import agent
        agent.on_stop(lambda: open("kept", "w").close())

        def work():
            while True:
                time.sleep(0.005)
                agent.report(1)

        threading.Thread(target=work).start()
        print("ready", flush=True)
        time.sleep(1000)
    """
    with script(code, environment(tmp_path / "r"), tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert (tmp_path / "kept").exists()


def test_in_a_container_a_save_leaves_a_word_in_the_pod_s_status(tmp_path: Path) -> None:
    """DRAGON-89: the scheduler learns that the work is saved without any network."""
    words = tmp_path / "termination-log"
    words.write_text("an older and longer word that is written over, however long it may have been")
    around = environment(tmp_path / "r") | {"STERNA_TERMINATION_LOG": str(words)}
    with script(TRAINING, around, tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    record = json.loads(words.read_text())
    assert record["saved"] is True
    assert record["step"] == int((tmp_path / "kept").read_text())


def test_a_checkpoint_of_its_own_accord_does_not_claim_that_all_work_is_saved(tmp_path: Path) -> None:
    words = tmp_path / "termination-log"
    words.touch()
    code = """
        from sterna import agent
        agent.report(41)
        agent.saved()
    """
    around = environment(tmp_path / "r") | {"STERNA_TERMINATION_LOG": str(words)}
    with script(code, around, tmp_path) as process:
        assert process.wait(30) == 0
    record = json.loads(words.read_text())
    assert (record["saved"], record["step"]) == (False, 41)


def test_failing_termination_log_does_not_disturb_the_process(tmp_path: Path) -> None:
    around = environment(tmp_path / "r") | {"STERNA_TERMINATION_LOG": str(tmp_path / "absent" / "log")}
    with script(TRAINING, around, tmp_path) as process:
        said(process, "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert (tmp_path / "r" / "saved.json").exists()
