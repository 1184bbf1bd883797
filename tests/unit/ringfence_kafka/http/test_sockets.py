import socket

import aiohttp
import pytest
from aiohttp import web

from app.worker.run import _check_port
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.http.auth import OPEN
from ringfence_kafka.http.server import advertised
from ringfence_kafka.http.sockets import listen
from tests.unit.ringfence_kafka.http.served import served


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return socket.has_dualstack_ipv6()


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 on this machine")
@pytest.mark.parametrize(("host", "asked"), [("::1", "[::1]"), ("::", "[::1]"), ("::", "127.0.0.1")])
async def test_ipv6(host: str, asked: str) -> None:
    """A server listens on IPv6 as on IPv4, and on both with ``::``. The announced URL has the brackets that it needs."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="here")

    async with served(OPEN, answer, host) as url, aiohttp.ClientSession() as session:
        port = url.rpartition(":")[2]
        async with session.get(f"http://{asked}:{port}/page") as said:
            assert await said.text() == "here"
    _check_port(host, int(port))

    assert advertised("::1", 80) == "http://[::1]:80"
    assert advertised("::", 80) == f"http://{socket.gethostname()}:80"


@pytest.mark.parametrize("host", ["203.0.113.7", "2001:db8::7", "no-such-host.invalid"])
def test_no_address_of_this_machine(host: str) -> None:
    """An address of another machine is reported as a wrong host, because another port would not help."""
    with pytest.raises(PrerequisiteError, match=f"app.web_host = '{host}': this machine cannot listen there"):
        listen(host, None)
    with pytest.raises(PrerequisiteError, match=r"app\.web_host = "):
        _check_port(host, 6066)


def test_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PrerequisiteError, match=f"--web-port {port}: cannot listen on 127.0.0.1"):
            listen("127.0.0.1", port)
        with pytest.raises(PrerequisiteError, match="choose another with --web-port"):
            _check_port("localhost", port)
