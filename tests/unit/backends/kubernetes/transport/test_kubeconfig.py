"""Selection of the cluster: files, contexts, the own pod; one sentence if it is ambiguous or missing."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sterna.backends.kubernetes.transport.credentials import authorization_header, tls_context
from sterna.backends.kubernetes.transport.kubeconfig import Access, access_of
from sterna.errors import Retry, UserError

Write = Callable[..., Path]


def a_config(**parts: Any) -> dict[str, Any]:
    """One cluster, one user with a token, one context; parts replace them."""
    whole = {
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443/"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "x",
    }
    return whole | parts


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(document: object, name: str = "config") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
        return path

    return written


def test_a_file_names_server_user_and_namespace(write: Write) -> None:
    access = access_of(str(write(a_config())), environment={})
    assert (access.server, access.token, access.namespace, access.context) == (
        "https://one:6443",
        "secret",
        "team",
        "x",
    )
    assert authorization_header(access) == "Bearer secret"


def test_secrets_are_not_shown(write: Write) -> None:
    assert "secret" not in repr(access_of(str(write(a_config())), environment={}))


def test_another_context_may_be_chosen(write: Write) -> None:
    contexts = [*a_config()["contexts"], {"name": "y", "context": {"cluster": "c"}}]
    access = access_of(str(write(a_config(contexts=contexts))), "y", environment={})
    assert (access.namespace, access.token) == ("default", "")


def test_the_variable_names_several_files_and_the_first_to_name_a_thing_wins(write: Write) -> None:
    first = write({"current-context": "x", "users": [{"name": "u", "user": {"token": "first"}}]}, "first")
    second = write(a_config(), "second")
    access = access_of(environment={"KUBECONFIG": f"{first}:{second}:{second.parent / 'absent'}"})
    assert (access.server, access.token) == ("https://one:6443", "first")


def test_default_kubeconfig_is_in_the_home_folder(write: Write, tmp_path: Path) -> None:
    write(a_config(), ".kube/config")
    assert access_of(environment={"HOME": str(tmp_path)}).server == "https://one:6443"


def test_certificates_come_as_data_or_as_paths_from_the_file_s_folder(write: Write, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"authority")
    (tmp_path / "key.pem").write_bytes(b"key")
    cluster = {"server": "https://one", "certificate-authority": "ca.pem", "tls-server-name": "name"}
    user = {"client-certificate-data": base64.b64encode(b"mine").decode(), "client-key": "key.pem"}
    parts = {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}]}
    access = access_of(str(write(a_config(**parts))), environment={})
    assert (access.authority, access.certificate, access.key) == (b"authority", b"mine", b"key")
    assert access.server_name == "name"


def test_token_file_is_read_again(write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n", encoding="utf-8")
    access = access_of(str(write(a_config(users=[{"name": "u", "user": {"tokenFile": "token"}}]))), environment={})
    assert authorization_header(access) == "Bearer one"
    (tmp_path / "token").write_text("two\n", encoding="utf-8")
    assert authorization_header(access) == "Bearer two"
    (tmp_path / "token").unlink()
    with pytest.raises(Retry, match="cannot be read"):
        authorization_header(access)


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_in_a_pod_its_service_account_is_used(tmp_path: Path, host: str, server: str) -> None:
    for name, text in (("token", "t"), ("ca.crt", "pem"), ("namespace", "sterna-system\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {"KUBERNETES_SERVICE_HOST": host, "HOME": str(tmp_path)}
    access = access_of(environment=environment, account=tmp_path)
    assert (access.server, access.authority, access.namespace) == (server, b"pem", "sterna-system")
    assert access.token_file == str(tmp_path / "token")


def _cluster(**cluster: Any) -> dict[str, Any]:
    return a_config(clusters=[{"name": "c", "cluster": cluster}])


def _user(**user: Any) -> dict[str, Any]:
    return a_config(users=[{"name": "u", "user": user}])


@pytest.mark.parametrize(
    ("document", "context", "sentence"),
    [
        pytest.param(a_config(), "xx", "no context 'xx' in .*did you mean 'x'", id="no such context"),
        pytest.param({"clusters": []}, "", "No context is current", id="no current context"),
        pytest.param(a_config(clusters=[]), "", "names the cluster 'c', which is not in", id="no such cluster"),
        pytest.param(a_config(users=[]), "", "names the user 'u', which is not in", id="no such user"),
        pytest.param(a_config(users=[{"name": "u", "user": 3}]), "", "user 'u' in .* is no mapping", id="odd user"),
        pytest.param(a_config(clusters=[{"name": "c", "cluster": {}}]), "", "has no server address", id="no server"),
        pytest.param(
            _cluster(server="https://h:64430000"), "", "The server https://h:64430000 .* is no address", id="port"
        ),
        pytest.param(
            _cluster(server="https://h", **{"proxy-url": "http://p:x"}), "", "The proxy-url http://p:x", id="proxy"
        ),
        pytest.param(a_config(clusters="c"), "", "'clusters' in .* is no list", id="no list"),
        pytest.param("a: [", "", "is not YAML", id="no YAML"),
        pytest.param("- a", "", "is no mapping", id="a list"),
        pytest.param(_user(**{"client-key-data": "!"}), "", "is not base64", id="no base64"),
        pytest.param(_user(**{"client-certificate": "absent"}), "", "cannot be read", id="no such certificate"),
        pytest.param(_user(**{"client-key-data": "YQ=="}), "", "has no client-certificate", id="half a pair"),
        pytest.param(_user(username="me"), "", "logs in with a password", id="password"),
        pytest.param(_user(**{"as": "me"}), "", "acts as another user", id="impersonation"),
    ],
)
def test_invalid_kubeconfig_is_named_in_a_sentence(write: Write, document: object, context: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        access_of(str(write(document)), context, environment={})


@pytest.mark.parametrize(
    ("kubeconfig", "environment", "sentence"),
    [
        ("absent", {}, "There is no kubeconfig absent"),
        ("", {"KUBECONFIG": "absent"}, r"None of the files in \$KUBECONFIG exists"),
        ("", {}, "name a file with --kubeconfig"),
    ],
)
def test_missing_kubeconfig_is_named_in_a_sentence(
    tmp_path: Path, kubeconfig: str, environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        access_of(kubeconfig, environment={"HOME": str(tmp_path), **environment}, account=tmp_path)


def test_a_login_program_needs_the_official_package(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kubernetes.config", None)
    config = _user(exec={"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"})
    with pytest.raises(UserError, match=r"sterna\[kubernetes-login\]"):
        access_of(str(write(config)), environment={})


def test_a_login_program_is_run_by_the_official_package(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("kubernetes", reason="the extra kubernetes-login is not installed")
    program = tmp_path / "login"
    answer = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"fresh"}}'
    program.write_text(f"#!/bin/sh\necho '{answer}'\n", encoding="utf-8")
    program.chmod(0o700)
    execute = {"command": str(program), "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    access = access_of(str(write(_user(exec=execute))), environment={})
    assert authorization_header(access) == "Bearer fresh"


def test_a_server_without_tls_needs_no_context() -> None:
    assert tls_context(Access("http://127.0.0.1:8001")) is None


def test_unverified_server_must_be_requested() -> None:
    context = tls_context(Access("https://one", is_checked=False))
    assert context is not None
    assert not context.check_hostname


@pytest.mark.parametrize(
    ("access", "sentence"),
    [
        (Access("https://one", authority=b"no pem", context="x"), "certificate authority of the context 'x'"),
        (Access("https://one", certificate=b"no", key=b"pem", context="x"), "client certificate of the context 'x'"),
    ],
    ids=["authority", "pair"],
)
def test_invalid_certificate_is_named_in_a_sentence(access: Access, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        tls_context(access)
