"""Validity period of certificates."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

EXPIRED: Final = 10
"""OpenSSL's codes for problems of a certificate: ``X509_V_ERR_…``."""
NOT_YET: Final = 9
OTHER_NAME: Final = frozenset({62, 64})
"""Codes of a certificate for another host name or address."""


def fault(path: str | Path) -> str:
    """Return why the first certificate of a PEM file is not valid now; empty = it is valid, or cannot be read."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (OSError, ValueError):
        return ""
    now = datetime.now(UTC)
    if now > ends:
        return f"expired on {ends:%Y-%m-%d %H:%M} UTC"
    if now < begins:
        return f"is valid only from {begins:%Y-%m-%d %H:%M} UTC on"
    return ""
