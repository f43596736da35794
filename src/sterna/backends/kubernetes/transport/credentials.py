"""What we show to a server: a TLS context made of an `Access`, and the header that says who we are.

For `client.py` alone. Keys that came as bytes touch the disk only for the moment that OpenSSL needs to read them.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from sterna.backends.kubernetes.transport.kubeconfig import Access
from sterna.errors import Retry, UserError

RENEW_SECONDS = 60.0
"""How old a header may be that comes of a file or a program."""


def tls_of(access: Access) -> ssl.SSLContext | None:
    """None for a server without TLS."""
    if not access.server.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cadata=access.authority.decode("ascii") or None)
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            f"The certificate authority of the context '{access.context}' is no certificate in PEM ({error}); mend it."
        ) from None
    # Many clusters have an authority that lacks an extension which newer versions of Python insist on; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.is_checked:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if access.certificate:
        _load(context, access)
    return context


def _load(context: ssl.SSLContext, access: Access) -> None:
    handle, path = tempfile.mkstemp(prefix="sterna-")  # readable for nobody else
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


def header_of(access: Access) -> str:
    """The value of `Authorization`; empty: the certificate says it all. `Retry` where it cannot be had just now."""
    if access.login is not None:
        return access.login()
    if access.token_file:
        try:
            return f"Bearer {Path(access.token_file).read_text(encoding='utf-8').strip()}"
        except OSError as error:
            raise Retry(f"The token file {access.token_file} cannot be read ({error.strerror}).") from None
    return f"Bearer {access.token}" if access.token else ""


def is_renewed(access: Access) -> bool:
    """Whether the header may change while we run."""
    return access.login is not None or bool(access.token_file)
