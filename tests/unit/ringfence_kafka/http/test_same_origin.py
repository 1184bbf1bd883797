"""Which changing requests are refused because a web page of another origin may have sent them."""

import re
import socket
from typing import Any

import pytest

from ringfence_kafka.http.same_origin import fault, is_ours


def test_names_of_this_server() -> None:
    """They are any address, localhost, the machine's name, and those of the configuration. Foreign names may point to this machine."""
    own = (f"{socket.gethostname()}:9", "orders.example", "Orders.Example.:80")
    for host in ("127.0.0.1:8080", "10.0.0.7", "[::1]:8080", "[fe80::1]", "localhost:1", "LOCALHOST", *own):
        assert is_ours(host, {"orders.example"}), host
    for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "[::1"):
        assert not is_ours(host, {"orders.example"}), host


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, None),
        ({"origin": "http://127.0.0.1:8080", "site": "same-origin"}, None),
        ({"origin": "http://evil.example"}, "Origin"),
        ({"origin": "null"}, "Origin"),
        ({"origin": "http://[::1"}, "Origin"),
        ({"site": "cross-site"}, "Sec-Fetch-Site"),
        ({"content_type": "text/plain"}, "Content-Type"),
        ({"host": "evil.example"}, "Host .*app.web_name"),
    ],
)
def test_what_another_origin_sends(asked: dict[str, str], expected: str | None) -> None:
    """Programs send neither Origin nor Sec-Fetch-Site; a proxy may speak TLS for the server. A refusal names its reason."""
    program: dict[str, Any] = {"host": "127.0.0.1:8080", "origin": None, "site": None}
    found = fault(**program | {"content_type": "application/json", "names": ()} | asked)

    assert found is None if expected is None else re.match(expected, found or "")
