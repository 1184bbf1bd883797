"""Which changing requests are refused because a web page of another origin may have sent them."""

import re
import socket

import pytest
from aiohttp.test_utils import make_mocked_request

from ringfence_kafka.http.same_origin import is_ours, refusal


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
        ({"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}, None),
        ({"Origin": "http://evil.example"}, "Origin"),
        ({"Origin": "null"}, "Origin"),
        ({"Origin": "http://[::1"}, "Origin"),
        ({"Sec-Fetch-Site": "cross-site"}, "Sec-Fetch-Site"),
        ({"Content-Type": "text/plain"}, "Content-Type"),
        ({"Host": "evil.example"}, "Host .*app.web_name"),
    ],
)
def test_what_another_origin_sends(asked: dict[str, str], expected: str | None) -> None:
    """Programs send neither Origin nor Sec-Fetch-Site; a proxy may speak TLS for the server. A refusal names its reason."""
    headers = {"Host": "127.0.0.1:8080", "Content-Type": "application/json"} | asked
    found = refusal(make_mocked_request("POST", "/", headers=headers), ())

    assert found is None if expected is None else re.match(expected, found or "")
