"""Commands for Kubernetes where its packages were not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sterna.cli.parsing.packages import kubernetes_packages
from tests.unit.cli.test_client import environment

_WITHOUT = "import sys; sys.modules['aiohttp'] = None; from sterna.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    "command",
    [("operator",), ("monitor", "--node", "n")],
    ids=lambda words: str(words[0]),
)
def test_a_missing_package_is_one_sentence_that_says_how_to_install_it(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT, *command],
        env=environment() | {"HOME": str(tmp_path), "STERNA_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = "Serving on a Kubernetes cluster needs aiohttp; install it with: pip install 'sterna[kubernetes]'."
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"sterna: {wanted}\n")


def test_commands_that_ask_a_cluster_need_no_package_of_their_own() -> None:
    program = "import sys; import sterna.cli.connect.kubernetes; print('aiohttp' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_a_missing_part_of_sterna_is_our_own_bug() -> None:
    with pytest.raises(ModuleNotFoundError), kubernetes_packages():
        raise ModuleNotFoundError(name="sterna.backends.kubernetes.transport.client")
