"""A training that only counts, run in pods by the tests: `python counting.py TOTAL SECONDS_A_STEP [SAVE_EVERY]`.

Every step is a line in a file that all nodes see, with the pod that did it, so that a test can check that no step was
lost or done twice. It saves when it is stopped, and every SAVE_EVERY steps. Standard library and agent only.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

from sterna import agent


def main(total: int, step_seconds: float, save_every: int = 0) -> None:
    here = (
        Path(os.environ["SHARED"]) / os.environ["STERNA_JOB"].rpartition("/")[2] / os.environ.get("STERNA_INDEX", "0")
    )
    here.mkdir(parents=True, exist_ok=True)
    lock = (here / "lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (here / "twice").touch()
        sys.exit(1)
    done = int((here / "saved").read_text()) if (here / "saved").exists() else 0

    @agent.on_stop
    def save() -> None:
        new = here / "saving"
        new.write_text(str(done))
        new.replace(here / "saved")

    with (here / "steps").open("a", buffering=1) as steps:
        while done < total:
            time.sleep(step_seconds)
            steps.write(f"{done} {os.environ.get('POD_NAME', '')} {os.environ.get('NODE_NAME', '')}\n")
            done += 1
            print(f"step {done} of {total}", flush=True)
            if save_every and done % save_every == 0:
                save()
            agent.report(done, total, loss=1 / done)
    save()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
