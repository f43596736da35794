"""Keys and certificates of a control plane that lives for one run, made by openssl. Not for anything that lasts."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes.binaries import NotAvailable

_CONFIG = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = unused
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[holder]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
_DAYS = "30"


class Certificates:
    """A folder with an authority of its own, and what it has signed."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            raise NotAvailable("openssl is not here; install the package openssl.")
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "openssl.cnf").write_text(_CONFIG, encoding="utf-8")
        self._make("ca", "/CN=sterna-tests", ["-extensions", "authority"])
        self._openssl("genrsa", "-out", "accounts.key", "2048")
        self._openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")

    def sign(self, name: str, subject: str, alternatives: Sequence[str] = ()) -> None:
        """`name.crt` and `name.key`, for a server and for a client alike."""
        more = ["-addext", f"subjectAltName={','.join(alternatives)}"] if alternatives else []
        self._make(name, subject, ["-extensions", "holder", "-CA", "ca.crt", "-CAkey", "ca.key", *more])

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def kubeconfig(self, file: Path, server: str, name: str = "", token: str = "", namespace: str = "default") -> Path:
        """Write a kubeconfig for a certificate or a token, with everything embedded."""
        user = (
            {"token": token}
            if token
            else {
                f"client-{key}-data": self._embedded(f"{name}.{end}")
                for key, end in (("certificate", "crt"), ("key", "key"))
            }
        )
        cluster = {"server": server, "certificate-authority-data": self._embedded("ca.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": namespace}}],
            "current-context": "tests",
        }
        file.write_text(json.dumps(document, indent=1), encoding="utf-8")  # JSON is YAML
        return file

    def _embedded(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()

    def _make(self, name: str, subject: str, more: Sequence[str]) -> None:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        self._openssl("req", "-x509", "-config", "openssl.cnf", *key, *files, "-days", _DAYS, "-subj", subject, *more)

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotAvailable(f"`openssl {words[0]}` failed: {done.stderr.strip()}; version 3 or later is needed.")
