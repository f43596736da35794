"""The programs of a real Kubernetes for tests and measurements: found, or built once from their Go modules.

`python -m tests.kubernetes.binaries etcd kube-apiserver` provides them and prints their paths. They are searched in the
folder `KUBEBUILDER_ASSETS` (what setup-envtest fills), then in the user's cache; clients also on the path. Building
takes Go and its module proxy, some minutes for the first of each module, and logs each step. It never replaces what it
found, and installs nothing outside the cache.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

Say = Callable[[str], None]

KUBERNETES, LIBRARIES = "v1.36.3", "v0.36.3"
"""Kubernetes, and the libraries that it is released with."""
WORD_SECONDS = 30.0
"""How long a build may be silent."""
OLDEST_GO = (1, 21)
"""Later ones fetch the version that a module asks for by themselves."""


class NotAvailable(Exception):  # noqa: N818  (not an error of the product: a reason to leave a test out)
    """A program is missing and cannot be built; the message names what to install."""


@dataclass(frozen=True)
class Module:
    """A Go module that programs are built from."""

    name: str
    path: str
    version: str
    programs: Mapping[str, str]
    """Program to package; an empty package: `source` is its main."""
    source: str = ""
    link_flags: str = ""
    replaced_by: Mapping[str, str] = field(default_factory=dict)
    """Versions for modules that this one replaces by folders of its own, by prefix."""


_VERSION = "k8s.io/component-base/version"
_COREDNS = "github.com/coredns/coredns"

MODULES = (
    Module(
        "etcd",
        "go.etcd.io/etcd/server/v3",
        "v3.6.7",
        {"etcd": ""},
        'package main\nimport (\n"os"\n"go.etcd.io/etcd/server/v3/etcdmain"\n)\n'
        "func main() { etcdmain.Main(os.Args) }\n",
    ),
    Module(
        "kubernetes",
        "k8s.io/kubernetes",
        KUBERNETES,
        {
            each: f"k8s.io/kubernetes/cmd/{each}"
            for each in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
                "kube-proxy",
            )
        },
        link_flags=f"-X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36",
        replaced_by={"k8s.io/": LIBRARIES},
    ),
    Module(
        "mpi-operator",
        "github.com/kubeflow/mpi-operator",
        "v0.8.0",
        {"mpi-operator": "github.com/kubeflow/mpi-operator/cmd/mpi-operator"},
    ),
    Module("helm", "helm.sh/helm/v3", "v3.19.0", {"helm": "helm.sh/helm/v3/cmd/helm"}),
    Module(
        "coredns",
        _COREDNS,
        "v1.14.6",
        {"coredns": ""},
        "package main\nimport (\n"
        + "".join(f'_ "{_COREDNS}/plugin/{each}"\n' for each in ("bind", "cache", "errors", "kubernetes"))
        + f'"{_COREDNS}/coremain"\n)\nfunc main() {{ coremain.Run() }}\n',
    ),
)
KUBEFLOW = Module("training-operator", "github.com/kubeflow/training-operator", "v1.9.3", {})
"""Nothing of it is run: it holds Kubeflow's own definitions of its kinds."""
PROGRAMS = {program: module for module in MODULES for program in module.programs}
CLIENTS = frozenset({"kubectl", "helm"})
"""Any version of theirs that the machine has will do."""

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
NODES = ("kubelet", "kube-proxy", "coredns")


def need(program: str, say: Say | None = None) -> Path:
    """Return the path of a program; build it first if necessary."""
    return found(program) or _build(program, say or _say)


def found(program: str) -> Path | None:
    """Return the path of a program, or None."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    places = [Path(assets) / program] if assets else []
    places.append(_folder(PROGRAMS[program]) / program)
    on_path = shutil.which(program) if program in CLIENTS else None
    places += [Path(on_path)] if on_path else []
    return next((place for place in places if os.access(place, os.X_OK)), None)


def cache() -> Path:
    """Return the cache folder of programs and images."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "sterna" / "kubernetes"


def module_folder(module: Module) -> Path:
    """The sources of a module, fetched if need be: tests read other people's CRDs from there."""
    _check_go(module.name)
    fetched = _go(["mod", "download", "-json", f"{module.path}@{module.version}"], cache_folder("build"))
    return Path(json.loads(fetched)["Dir"])


def cache_folder(name: str) -> Path:
    folder = cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _folder(module: Module) -> Path:
    return cache() / f"{module.name}-{module.version}"


def _build(program: str, say: Say) -> Path:
    module = PROGRAMS[program]
    _check_go(program)
    with one_at_a_time("build.lock", say):
        if there := found(program):  # another process built it meanwhile
            return there
        say(f"building {program} {module.version} from its Go module; this is done once and takes minutes")
        began, target = monotonic(), _folder(module) / program
        target.parent.mkdir(parents=True, exist_ok=True)
        source = _source_of(module, program)
        new = target.with_suffix(".new")
        package = module.programs[program] or "."
        flags = ["-trimpath", "-ldflags", f"-s -w {module.link_flags}".strip(), "-o", str(new)]
        _go(["build", *flags, package], source, lambda seconds: say(f"still building {program}: {seconds:.0f} s"))
        new.replace(target)
        say(f"built {program} in {monotonic() - began:.0f} s: {target.stat().st_size >> 20} MB, {target}")
        return target


def _source_of(module: Module, program: str) -> Path:
    """A folder with a module of our own that requires theirs. Go heeds replacements of the main module only, so theirs
    are repeated; folders beside them, which we do not have, become released versions."""
    theirs = json.loads(_go(["mod", "edit", "-json", str(module_folder(module) / "go.mod")], cache_folder("build")))
    lines = [f"module build/{program}", f"go {theirs['Go']}", f"require {module.path} {module.version}"]
    for each in theirs.get("Replace") or []:
        old, new = each["Old"]["Path"], each["New"]
        if new["Path"].startswith("."):
            released = next((v for prefix, v in module.replaced_by.items() if old.startswith(prefix)), "")
            new = {"Path": old, "Version": released}
        if new["Version"]:
            lines.append(f"replace {old} => {new['Path']} {new['Version']}")
    folder = cache_folder(f"build/{program}")
    (folder / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = module.source or f'//go:build tools\n\npackage main\n\nimport _ "{module.programs[program]}"\n'
    (folder / "main.go").write_text(source, encoding="utf-8")
    _go(["mod", "tidy", "-e"], folder)
    return folder


def _go(words: Sequence[str], folder: Path, tell: Callable[[float], None] = lambda seconds: None) -> str:
    """Run a go command and return its output; progress is shown from time to time."""
    flags = f"{os.environ.get('GOFLAGS', '')} -mod=mod -buildvcs=false".strip()
    is_build = words[0] == "build" or words[:2] == ["mod", "tidy"]
    environment = dict(os.environ, CGO_ENABLED="0", GOFLAGS=flags if is_build else "", GOWORK="off")
    began = monotonic()
    process = subprocess.Popen(
        ["go", *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while True:
        try:
            output, complaints = process.communicate(timeout=WORD_SECONDS)
            break
        except subprocess.TimeoutExpired:
            tell(monotonic() - began)
        except BaseException:
            process.kill()
            process.communicate()
            raise
    if process.returncode:
        last = (complaints or output).strip().splitlines()[-1:] or ["it gave no reason"]
        raise NotAvailable(f"`go {' '.join(words[:2])}` failed, so nothing could be built: {last[0]}")
    return output


def _check_go(program: str) -> None:
    go = f"Go {'.'.join(map(str, OLDEST_GO))} or later"
    hint = f"{program} is not here; install {go}, or name a folder that has it in KUBEBUILDER_ASSETS"
    if shutil.which("go") is None:
        raise NotAvailable(f"{hint}.")
    output = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout.strip()
    numbers = output.removeprefix("go").split(".")[:2]
    if len(numbers) < 2 or not all(each.isdigit() for each in numbers) or tuple(map(int, numbers)) < OLDEST_GO:
        raise NotAvailable(f"{hint} (found {output or 'one that does not start'}).")


@contextmanager
def one_at_a_time(name: str, say: Say) -> Iterator[None]:
    """Two runs of the tests on one machine do not make the same thing twice."""
    with (cache_folder("") / name).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run that is at it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Have programs of a real Kubernetes ready; print where they are.")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}")
    asked = parser.parse_args().programs or CONTROL_PLANE
    if unknown := [program for program in asked if program not in PROGRAMS]:
        parser.error(f"there is no program {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    try:
        for program in asked:
            print(need(program), flush=True)
    except NotAvailable as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
