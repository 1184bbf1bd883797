from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from ringfence_kafka.auth import certificate_validity

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


def _issued(folder: Path, begins: datetime, ends: datetime) -> Path:
    path = folder / "chain.pem"
    issued = trustme.CA().issue_cert("here.test", not_before=begins, not_after=ends)
    path.write_bytes(issued.private_key_pem.bytes() + b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    return path


@pytest.mark.parametrize(
    ("begins", "ends", "expected"),
    [
        (-10 * DAY, DAY, ""),
        (-10 * DAY, -DAY, f"expired on {NOW - DAY:%Y-%m-%d %H:%M} UTC"),
        (DAY, 2 * DAY, f"is valid only from {NOW + DAY:%Y-%m-%d %H:%M} UTC on"),
    ],
    ids=["valid", "expired", "not yet valid"],
)
def test_validity(tmp_path: Path, begins: timedelta, ends: timedelta, expected: str) -> None:
    """The validity is that of the first certificate in the file, whatever precedes it."""
    assert certificate_validity.fault(_issued(tmp_path, NOW + begins, NOW + ends)) == expected


@pytest.mark.parametrize("text", ["", "\nMAA=\n-----END CERTIFICATE-----\n"])
def test_what_cannot_be_read(tmp_path: Path, text: str) -> None:
    """An unreadable certificate gives no error here, because its user reports it better."""
    (tmp_path / "some.pem").write_text(f"-----BEGIN CERTIFICATE-----{text}")

    assert certificate_validity.fault(tmp_path / "some.pem") == ""
