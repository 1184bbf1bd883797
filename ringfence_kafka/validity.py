"""Until when a certificate holds. The little of DER that is needed to read it."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

EXPIRED: Final = 10
"""This and the next, as OpenSSL numbers what is wrong with a certificate: ``X509_V_ERR_…``."""
NOT_YET: Final = 9
OTHER_NAME: Final = frozenset({62, 64})
"""It is for another host name, or another address."""

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
"""Tag of what a certificate of version 1 does not have."""
_UTC_TIME: Final = 0x17
_LONG: Final = 0x80
"""Bit of a length that says that its lower bits count the bytes of the length."""
_CENTURY: Final = 50
"""RFC 5280: two digits from here on are of the last century."""


class Validity(NamedTuple):
    """Of a certificate."""

    begins: datetime
    ends: datetime

    def fault(self, now: datetime) -> str:
        """Why it does not hold now; empty = it does."""
        if now > self.ends:
            return f"expired on {self.ends:%Y-%m-%d %H:%M} UTC"
        if now < self.begins:
            return f"is valid only from {self.begins:%Y-%m-%d %H:%M} UTC on"
        return ""


def fault(path: str | Path) -> str:
    """Why the first certificate of a PEM file, whose chain it begins, does not hold now; empty = it does, or cannot be read."""
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
        begin = text.index(_BEGIN)
        pem = text[begin : text.index(_END, begin) + len(_END)]
        return read(ssl.PEM_cert_to_DER_cert(pem)).fault(datetime.now(UTC))
    except (OSError, ValueError, IndexError):
        return ""


def read(der: bytes) -> Validity:
    """Of a certificate in DER.

    Raises:
        ValueError, IndexError: it is none.
    """
    begin, _ = _content(der, 0)  # Certificate
    at, _ = _content(der, begin)  # TBSCertificate
    if der[at] == _VERSION:
        at = _behind(der, at)
    for _ in range(3):  # serial number, algorithm, issuer
        at = _behind(der, at)
    at, _ = _content(der, at)  # Validity
    return Validity(_time(der, at), _time(der, _behind(der, at)))


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element there begins and ends."""
    length, begin = der[at + 1], at + 2
    if length & _LONG:
        digits = length & ~_LONG
        length, begin = int.from_bytes(der[begin : begin + digits]), begin + digits
    return begin, begin + length


def _behind(der: bytes, at: int) -> int:
    return _content(der, at)[1]


def _time(der: bytes, at: int) -> datetime:
    begin, end = _content(der, at)
    text = der[begin:end].decode("ascii")
    if der[at] == _UTC_TIME:
        text = f"{19 if int(text[:2]) >= _CENTURY else 20}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
