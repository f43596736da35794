"""Access to a cluster, from a kubeconfig or from the service account of the pod this process runs in.

Kubeconfigs are found as `kubectl` does: `--kubeconfig`, then `$KUBECONFIG` (several files, the first definition of a
name wins), then `~/.kube/config`, else the service account of the pod. Used by operator, monitor and commands.

Logins by a program (exec) or a provider (OIDC) are left to the official `kubernetes` package, which is imported only
then. Nothing is written, and certificates are read once.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from sterna.errors import Retry, UserError, did_you_mean

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOGIN_EXTRA = "sterna[kubernetes-login]"


@dataclass(frozen=True)
class Access:
    """A server and the credentials for it."""

    server: str
    authority: bytes = b""
    """Certificates in PEM; empty: the authorities that this machine trusts."""
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    """Path; read again every minute, because the kubelet renews the token."""
    login: Callable[[], str] | None = field(default=None, repr=False)
    """Returns the value of the `Authorization` header. May take seconds, and raise `Retry`."""
    server_name: str = ""
    """Name in the server's certificate if it differs from the address (`tls-server-name`)."""
    is_checked: bool = True
    """False: the server's certificate is not verified (`insecure-skip-tls-verify`)."""
    proxy: str = ""
    namespace: str = "default"
    context: str = ""


def access_of(
    kubeconfig: str = "",
    context: str = "",
    environment: Mapping[str, str] = os.environ,
    account: Path = _ACCOUNT,
) -> Access:
    """Return access to the chosen cluster; raise `UserError` if none is defined."""
    files = _find_files(kubeconfig, environment)
    if files:
        return _from_files(files, context)
    if "KUBERNETES_SERVICE_HOST" in environment and (account / "token").exists():
        return _from_pod(environment, account)
    raise UserError(
        "No cluster is named: there is no ~/.kube/config and we are not in a pod; name a file with --kubeconfig or "
        "$KUBECONFIG."
    )


def _find_files(kubeconfig: str, environment: Mapping[str, str]) -> list[Path]:
    if kubeconfig:
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            raise UserError(f"There is no kubeconfig {kubeconfig}; check the path given with --kubeconfig.")
        return [path]
    if environment.get("KUBECONFIG"):
        named = [Path(part) for part in environment["KUBECONFIG"].split(os.pathsep) if part]
        found = [path for path in named if path.is_file()]
        if not found:
            raise UserError(
                f"None of the files in $KUBECONFIG exists ({environment['KUBECONFIG']}); correct or unset it."
            )
        return found
    usual = Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"
    return [usual] if usual.is_file() else []


def _from_pod(environment: Mapping[str, str], account: Path) -> Access:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = account / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        authority=(account / "ca.crt").read_bytes() if (account / "ca.crt").is_file() else b"",
        token_file=str(account / "token"),
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else "default",
        context="in-cluster",
    )


# Kubeconfig files.


@dataclass(frozen=True)
class _KubeconfigEntry:
    """One cluster, user or context of a kubeconfig; relative paths in it start at `folder`."""

    values: Mapping[str, Any]
    folder: Path


class _Merged:
    """Several kubeconfigs merged; the first definition of a name wins."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = files
        self.current = ""
        self._parts: dict[str, dict[str, _KubeconfigEntry]] = {"clusters": {}, "users": {}, "contexts": {}}
        for file in files:
            document = _load_document(file)
            self.current = self.current or str(document.get("current-context") or "")
            for part, entries in self._parts.items():
                for entry in _list_entries(document.get(part), file, part):
                    values = entry.get(part[:-1])
                    entries.setdefault(
                        str(entry["name"]), _KubeconfigEntry(values if values is not None else {}, file.parent)
                    )

    @property
    def where(self) -> str:
        return os.pathsep.join(map(str, self.files))

    def part(self, part: str, name: str, wanted_by: str) -> _KubeconfigEntry:
        entries = self._parts[part]
        if name not in entries:
            raise UserError(
                f"{wanted_by} names the {part[:-1]} '{name}', which is not in {self.where}; "
                f"{did_you_mean(name, entries)}"
            )
        if not isinstance(entries[name].values, Mapping):
            raise UserError(f"The {part[:-1]} '{name}' in {self.where} is no mapping; mend the file.")
        return entries[name]

    def context(self, name: str) -> tuple[str, _KubeconfigEntry]:
        name = name or self.current
        contexts = self._parts["contexts"]
        if not name:
            raise UserError(f"No context is current in {self.where}; choose one with --context: {', '.join(contexts)}.")
        if name not in contexts:
            raise UserError(f"There is no context '{name}' in {self.where}; {did_you_mean(name, contexts)}")
        return name, self.part("contexts", name, "")


def _load_document(file: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The kubeconfig {file} cannot be read ({error}); check its permissions.") from None
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise UserError(f"The kubeconfig {file} is not YAML ({first}); mend it or name another.") from None
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise UserError(f"The kubeconfig {file} is no mapping; mend it or name another.")
    return document


def _list_entries(entries: object, file: Path, part: str) -> list[Mapping[str, Any]]:
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) and "name" in entry for entry in entries):
        raise UserError(f"'{part}' in the kubeconfig {file} is no list of named entries; mend the file.")
    return entries


def _from_files(files: Sequence[Path], context: str) -> Access:
    merged = _Merged(files)
    name, chosen = merged.context(context)
    by = f"The context '{name}'"
    cluster = merged.part("clusters", str(chosen.values.get("cluster") or ""), by)
    access = _from_cluster(cluster, str(chosen.values.get("namespace") or "default"), name, merged.where)
    if not chosen.values.get("user"):
        return access
    return _with_user(access, merged.part("users", str(chosen.values["user"]), by), merged)


def _is_address(written: str) -> bool:
    """True if `written` is empty or has a host and a valid port."""
    try:
        address = urlsplit(written)
        return not written or (bool(address.hostname) and address.port != 0)
    except ValueError:
        return False


def _from_cluster(cluster: _KubeconfigEntry, namespace: str, context: str, where: str) -> Access:
    values = cluster.values
    server = str(values.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise UserError(
            f"The cluster of the context '{context}' in {where} has no server address (https://..); add it."
        )
    for name, address in (("server", server), ("proxy-url", str(values.get("proxy-url") or ""))):
        if not _is_address(address):
            raise UserError(
                f"The {name} {address} of the context '{context}' in {where} is no address; "
                "write it as https://HOST:PORT."
            )
    return Access(
        server=server,
        authority=_read_bytes(cluster, "certificate-authority", where),
        server_name=str(values.get("tls-server-name") or ""),
        is_checked=not values.get("insecure-skip-tls-verify", False),
        proxy=str(values.get("proxy-url") or ""),
        namespace=namespace,
        context=context,
    )


def _with_user(access: Access, user: _KubeconfigEntry, merged: _Merged) -> Access:
    values = user.values
    if values.get("as") or values.get("username"):
        what = "acts as another user" if values.get("as") else "logs in with a password"
        raise UserError(
            f"The user of the context '{access.context}' {what}, which Sterna does not do; use a certificate, a token "
            "or a login program."
        )
    if values.get("exec") or values.get("auth-provider"):
        return replace(access, login=_make_login(access.context, merged))
    certificate = _read_bytes(user, "client-certificate", merged.where)
    key = _read_bytes(user, "client-key", merged.where)
    if bool(certificate) != bool(key):
        lacking = "client-key" if certificate else "client-certificate"
        raise UserError(f"The user of the context '{access.context}' in {merged.where} has no {lacking}; add it.")
    token_file = str(values.get("tokenFile") or "")
    return replace(
        access,
        certificate=certificate,
        key=key,
        token=str(values.get("token") or ""),
        token_file=str(user.folder / token_file) if token_file else "",
    )


def _read_bytes(entry: _KubeconfigEntry, name: str, where: str) -> bytes:
    """Return a field given inline (`-data`, base64) or as a path."""
    data, path = entry.values.get(f"{name}-data"), entry.values.get(name)
    try:
        if data:
            return base64.b64decode(str(data), validate=True)
        return (entry.folder / str(path)).read_bytes() if path else b""
    except binascii.Error:
        raise UserError(f"'{name}-data' in {where} is not base64; mend it.") from None
    except OSError as error:
        raise UserError(f"'{name}' in {where} cannot be read ({error}); correct the path.") from None


# Logins by a program or provider.


def _make_login(context: str, merged: _Merged) -> Callable[[], str]:
    """Log in through the official package, which runs the program and caches its token."""
    try:
        from kubernetes.config import new_client_from_config
    except ImportError:
        raise UserError(
            f"The user of the context '{context}' logs in with a program or provider; install the extra for that: "
            f"pip install '{_LOGIN_EXTRA}'."
        ) from None

    def login() -> str:
        try:  # a new client each time: the package caches tokens on disk
            client = new_client_from_config(config_file=merged.where, context=context)
            header = str(client.configuration.auth_settings().get("BearerToken", {}).get("value") or "")
        except Exception as error:  # whatever a foreign program does
            raise Retry(f"The login of the context '{context}' failed ({error}); try it with kubectl.") from None
        if not header:
            raise Retry(f"The login of the context '{context}' gave no token; try it with kubectl.")
        return header

    return login
