"""Which changing requests are refused because a web page of another origin may have sent them."""

import socket

import pytest

from ringfence_kafka.http.same_origin import fault, is_ours


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "10.0.0.7", "[::1]:8080", "[fe80::1]", "localhost:1", "LOCALHOST", f"{socket.gethostname()}:9", "orders.example", "Orders.Example.:80"],
)  # fmt: skip
def test_names_of_this_server(host: str) -> None:
    """A server's names are any address, localhost, the machine's name, and those in the configuration."""
    assert is_ours(host, {"orders.example"})


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "[::1"])
def test_other_names(host: str) -> None:
    """A foreign name that points to this machine is refused."""
    assert not is_ours(host, {"orders.example"})


@pytest.mark.parametrize(
    ("origin", "site", "content_type", "expected"),
    [
        (None, None, "application/json", None),
        ("http://127.0.0.1:8080", "same-origin", "application/json", None),
        ("http://evil.example", None, "application/json", "Origin"),
        ("null", None, "application/json", "Origin"),
        ("http://[::1", None, "application/json", "Origin"),
        (None, "cross-site", "application/json", "Sec-Fetch-Site"),
        (None, None, "text/plain", "Content-Type"),
        (None, None, "application/x-www-form-urlencoded", "Content-Type"),
    ],
)
def test_each_of_the_three(
    origin: str | None, site: str | None, content_type: str, expected: str | None
) -> None:
    """Programs send neither Origin nor Sec-Fetch-Site; a proxy may speak TLS for the server."""
    found = fault(host="127.0.0.1:8080", origin=origin, site=site, content_type=content_type, names=())
    assert (found or "").startswith(expected or "") if expected else found is None


def test_a_foreign_host() -> None:
    """The text names the setting that allows it."""
    found = fault(host="evil.example", origin=None, site=None, content_type="application/json", names=())
    assert "app.web_name" in (found or "")
