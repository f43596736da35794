"""Client credentials of an `Access`: the TLS context and the `Authorization` header.

Certificates and keys that the kubeconfig holds as data are on disk only while OpenSSL loads them.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from sterna.backends.kubernetes.transport.kubeconfig import Access
from sterna.errors import Retry, UserError

RENEW_SECONDS = 60.0
"""Period of rereading a token file or rerunning a login program."""


def tls_context(access: Access) -> ssl.SSLContext | None:
    """Make the TLS context for `access`; None for a server without TLS."""
    if not access.server.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cadata=access.authority.decode("ascii") or None)
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            f"The certificate authority of the context '{access.context}' is no certificate in PEM ({error}); mend it."
        ) from None
    # Python 3.13 and later reject certificate authorities without a key usage extension; Go and many clusters do not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.is_checked:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if access.certificate:
        _load_client_certificate(context, access)
    return context


def _load_client_certificate(context: ssl.SSLContext, access: Access) -> None:
    handle, path = tempfile.mkstemp(prefix="sterna-")  # with mode 0600
    try:
        with os.fdopen(handle, "wb") as pair:
            pair.write(access.certificate + b"\n" + access.key)
        context.load_cert_chain(path)
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            f"The client certificate of the context '{access.context}' and its key do not fit ({error}); get new ones."
        ) from None
    finally:
        os.unlink(path)


def authorization_header(access: Access) -> str:
    """Return the value of `Authorization`; empty if the client certificate suffices. Raise `Retry` if it fails."""
    if access.login is not None:
        return access.login()
    if access.token_file:
        try:
            return f"Bearer {Path(access.token_file).read_text(encoding='utf-8').strip()}"
        except OSError as error:
            raise Retry(f"The token file {access.token_file} cannot be read ({error.strerror}).") from None
    return f"Bearer {access.token}" if access.token else ""


def is_renewable(access: Access) -> bool:
    """True if the header may change while the client runs."""
    return access.login is not None or bool(access.token_file)
