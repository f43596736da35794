"""Container images without a registry and without Docker, for real nodes: made once, kept in the user's cache.

`python -m tests.kubernetes.nodes.images` makes them, as root, where there is still a network (nodes have none).
`sterna.local/pause:1` is a static busybox; `sterna.local/python:1` is Debian with Python. Packed as image layouts that
`ctr images import` takes. Training code is not in them: tests mount it.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kubernetes.binaries import NotAvailable, Say, cache_folder, one_at_a_time
from tests.kubernetes.nodes.apart import what_is_missing

PAUSE, PYTHON = "sterna.local/pause:1", "sterna.local/python:1"
RELEASE, PACKAGES = "bookworm", "python3"
PYTHON_VERSION = (3, 11)
"""Of that release."""
_LEFT_OUT = (
    "var/cache/apt/*",
    "var/lib/apt/lists/*",
    "usr/share/doc/*",
    "usr/share/locale/*",
    "usr/share/man/*",
    "proc/*",
    "sys/*",
    "dev/*",
)
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG, _LAYER = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"


def images(say: Say) -> list[Path]:
    """Files to import on every node."""
    folder = cache_folder("images")
    with one_at_a_time("images.lock", say):
        return [_pause(folder), _python(folder, say)]


def main() -> int:
    try:
        if missing := what_is_missing(is_apart=True):
            raise NotAvailable(f"{missing}.")
        for file in images(lambda what: print(f"  {what}", file=sys.stderr, flush=True)):
            print(file)
    except NotAvailable as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _pause(folder: Path) -> Path:
    file = folder / "pause.tar"
    if not file.exists():
        root = folder / "pause"
        root.mkdir(exist_ok=True)
        shutil.copy2(str(shutil.which("busybox")), root / "busybox")
        pack(root, PAUSE, ["/busybox", "sleep", "2147483647"], file)
    return file


def _python(folder: Path, say: Say) -> Path:
    file = folder / f"{RELEASE}-{PACKAGES}.tar"
    if not file.exists():
        root = folder / "python"
        shutil.rmtree(root, ignore_errors=True)
        say("making a Debian with Python as a container image; this is done once and takes a minute or two")
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it gave no reason"]
            raise NotAvailable(f"debootstrap made no image: {last[0]}")
        pack(root, PYTHON, [], file)
        shutil.rmtree(root)
    return file


def pack(root: Path, name: str, entry: Sequence[str], file: Path) -> None:
    """A folder as an image of one layer."""
    layer, new = file.with_suffix(".layer"), file.with_suffix(".new")
    excluded = [f"--exclude=./{each}" for each in _LEFT_OUT]
    subprocess.run(
        ["tar", "--numeric-owner", "--sort=name", *excluded, "-C", str(root), "-cf", str(layer), "."], check=True
    )
    digest = _digest_of(layer)
    config = _encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": list(entry) or None,
                "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
    )
    layers = [{"mediaType": _LAYER, "digest": digest, "size": layer.stat().st_size}]
    manifest = _encode(
        {"schemaVersion": 2, "mediaType": _MANIFEST, "config": _descriptor(_CONFIG, config), "layers": layers}
    )
    index = _encode(
        {"schemaVersion": 2, "manifests": [_descriptor(_MANIFEST, manifest) | {"annotations": _names(name)}]}
    )
    with tarfile.open(new, "w") as archive:
        for path, data in (
            ("oci-layout", _encode({"imageLayoutVersion": "1.0.0"})),
            ("index.json", index),
            (_blob(_digest(config)), config),
            (_blob(_digest(manifest)), manifest),
        ):
            entry_of = tarfile.TarInfo(path)
            entry_of.size = len(data)
            archive.addfile(entry_of, io.BytesIO(data))
        archive.add(layer, _blob(digest))
    layer.unlink()
    new.replace(file)


def _names(name: str) -> dict[str, str]:
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}


def _descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _encode(document: object) -> bytes:
    return json.dumps(document).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


if __name__ == "__main__":
    sys.exit(main())
