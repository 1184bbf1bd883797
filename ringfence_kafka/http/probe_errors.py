"""Reasons for which a web server does not answer, with remedies."""

import ssl
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from ringfence_kafka.auth import certificate_validity
from ringfence_kafka.config.settings import AppSettings

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST"})
_PROBE: Final = {"ready"}
"""Keys of a ``/health`` response without the token."""


@dataclass(frozen=True, slots=True)
class ProbeError:
    """Reason for a failed probe, as far as it is known, and the remedy."""

    what: str
    """Reason, such as ``its web certificate has expired``."""
    do: str

    def __str__(self) -> str:
        return f"{self.what}: {self.do}"


async def get(
    session: aiohttp.ClientSession, app: AppSettings, url: str
) -> dict[str, Any] | ProbeError | None:
    """Return the document at a URL; None = no server answers, or the response is not a document.

    ``session``: result of :func:`ringfence_kafka.http.auth.session` with these settings.
    """
    try:
        async with session.get(url) as answer:
            if answer.status == HTTPStatus.UNAUTHORIZED:
                return token(app)
            document = await answer.json()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        return fault(app, error)
    if not isinstance(document, dict):
        return None
    return token(app) if document.keys() == _PROBE else document


def token(app: AppSettings) -> ProbeError:
    """Return the error of a server that requires another token."""
    if app.web_token_env:
        what = f"it refuses the token in {app.web_token_env} (app.web_token_env)"
        return ProbeError(what, f"set {app.web_token_env} here to what it has there")
    return ProbeError(
        "it asks for a token, and app.web_token_env is not set here",
        "set it to the name of the variable that has the same token as there",
    )


def fault(app: AppSettings, error: BaseException) -> ProbeError | None:
    """Return the TLS error of a failed connection; None = another error."""
    cause = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate(app, cause)
    if not isinstance(cause, ssl.SSLError):
        return None
    reason = cause.reason or str(cause)
    if reason in _NO_TLS:
        return ProbeError(
            "it does not speak TLS there",
            "another program may listen at that address: look whether it runs with the same [app] as here",
        )
    reason = reason.replace("_", " ").lower()
    return ProbeError(f"TLS fails ({reason})", "look at app.web_tls_certfile there, and at its log")


def _certificate(app: AppSettings, error: ssl.SSLCertVerificationError) -> ProbeError:
    code, why = error.verify_code, error.verify_message or str(error)
    if code == certificate_validity.EXPIRED:
        return ProbeError(
            "its web certificate has expired",
            "renew app.web_tls_certfile there, and restart it: it reads the file once",
        )
    if code == certificate_validity.NOT_YET:
        return ProbeError(
            "its web certificate is not valid yet", "see that its clock and the one here are right"
        )
    if code in certificate_validity.OTHER_NAME:
        return ProbeError(
            f"its web certificate is for another name ({why.strip().rstrip('.')})",
            "set app.web_name there to a name that the certificate has, or have one made for that name",
        )
    known = repr(app.web_tls_cafile) if app.web_tls_cafile else "'' (the system's)"
    return ProbeError(
        f"its web certificate is not trusted ({why})",
        f"set app.web_tls_cafile here, now {known}, to the authority that signed it",
    )
