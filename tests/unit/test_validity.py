"""Until when a certificate holds, as Ringfence reads it itself."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ringfence_kafka import validity

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


def _issued(folder: Path, begins: datetime, ends: datetime) -> Path:
    path = folder / "chain.pem"
    issued = trustme.CA().issue_cert("here.test", not_before=begins, not_after=ends)
    path.write_bytes(
        issued.private_key_pem.bytes() + b"".join(each.bytes() for each in issued.cert_chain_pems)
    )
    return path


@pytest.mark.parametrize(
    ("begins", "ends", "expected"),
    [
        (-10 * DAY, DAY, ""),
        (-10 * DAY, -DAY, f"expired on {NOW - DAY:%Y-%m-%d %H:%M} UTC"),
        (DAY, 2 * DAY, f"is valid only from {NOW + DAY:%Y-%m-%d %H:%M} UTC on"),
    ],
)
def test_validity(tmp_path: Path, begins: timedelta, ends: timedelta, expected: str) -> None:
    """Of the first certificate of the file, whatever stands before it."""
    assert validity.fault(_issued(tmp_path, NOW + begins, NOW + ends)) == expected


@pytest.mark.parametrize("year", [1969, 2049, 2050, 2199])
def test_both_forms_of_a_time(tmp_path: Path, year: int) -> None:
    """Two digits of a year up to 2049, four from 2050 on."""
    begins = datetime(1951, 1, 2, 3, 4, 5, tzinfo=UTC)
    path = _issued(tmp_path, begins, datetime(year, 6, 7, 8, 9, 10, tzinfo=UTC))
    certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    found = validity.read(certificate.public_bytes(Encoding.DER))

    assert found == (certificate.not_valid_before_utc, certificate.not_valid_after_utc)


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----", "no PEM", None])
def test_what_cannot_be_read(tmp_path: Path, content: str | None) -> None:
    """Says nothing: who uses the file says it better."""
    path = tmp_path / "some.pem"
    if content is not None:
        path.write_text(content)

    assert validity.fault(path) == ""
    path.write_text("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
    assert validity.fault(path) == ""
