"""Links that tests disturb: they do what their modes say, and clients stay on them."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from app.embedded.broker_process import HOST
from tests.support.brokers.link import TcpProxy
from tests.support.worker import wait_for

LIMIT_S = 10.0
SOON_S = 0.3


class _Echo(socketserver.BaseRequestHandler):
    """A server that keeps what arrives and sends it back."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self.request.recv(65_536):
                self.server.arrived += chunk  # type: ignore[attr-defined]
                self.request.sendall(chunk)
        self.server.ended += 1  # type: ignore[attr-defined]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Echo)
        self.arrived = b""
        self.ended = 0


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def link(server: _Server) -> Iterator[TcpProxy]:
    with TcpProxy(server.server_address[1]) as proxy:
        yield proxy
    assert not [thread for thread in threading.enumerate() if thread.name == f"proxy {proxy.port}"]


@pytest.fixture
def client(link: TcpProxy) -> Iterator[socket.socket]:
    with _connect(link) as connected:
        assert _ask(connected, b"first") == b"first"
        yield connected


def _connect(link: TcpProxy) -> socket.socket:
    return socket.create_connection((HOST, link.port), LIMIT_S)


def _ask(client: socket.socket, question: bytes) -> bytes:
    client.sendall(question)
    answer = b""
    while len(answer) < len(question) and (chunk := client.recv(65_536)):
        answer += chunk
    return answer


def _silent(client: socket.socket) -> bool:
    """Whether nothing comes for a moment, not even an end."""
    client.settimeout(SOON_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(LIMIT_S)
    return False


def test_cut_resets_and_refuses(link: TcpProxy, client: socket.socket) -> None:
    """Open connections are reset, new ones refused; opened again, the same port serves."""
    link.cut()

    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        _connect(link)
    assert link.struck == link.connections_cut == 1
    link.open()
    with _connect(link) as again:
        assert _ask(again, b"again") == b"again"


def test_blackhole_keeps_connections_and_drops_all(
    server: _Server, link: TcpProxy, client: socket.socket
) -> None:
    """A black hole passes nothing and reports nothing, even when one side ends; once healed, it resets the torn connection."""
    link.blackhole()
    client.sendall(b"never")
    with _connect(link) as other:
        other.sendall(b"nor this")
        wait_for(lambda: link.bytes_withheld == 13, lambda: str(link.bytes_withheld), LIMIT_S)
        client.shutdown(socket.SHUT_WR)

        assert _silent(other)
        assert _silent(client)
        assert (server.arrived, server.ended) == (b"first", 0)
        link.open()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionResetError):
            other.recv(1)
    wait_for(lambda: server.ended == 2, lambda: "the broker's side stays open", LIMIT_S)
    assert server.arrived == b"first"
    assert link.connections_cut == 0


def test_lost_answers(server: _Server, link: TcpProxy, client: socket.socket) -> None:
    """Requests arrive and answers do not; healed, the connection is reset and delivers no later answer."""
    link.lose_answers()
    client.sendall(b" request")
    wait_for(lambda: server.arrived == b"first request", lambda: str(server.arrived), LIMIT_S)
    wait_for(lambda: link.bytes_withheld == 8, lambda: str(link.bytes_withheld), LIMIT_S)

    assert _silent(client)
    link.open()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_late_and_narrow(link: TcpProxy, client: socket.socket) -> None:
    """A delay is each way and ends when the link opens; a narrow link takes its time; all data arrives."""
    sent = b"".join(b"%08d" % index for index in range(5_000))
    link.delay(0.2)
    began = time.monotonic()
    assert _ask(client, b"late") == b"late"
    late = time.monotonic() - began
    link.narrow(200_000)
    began = time.monotonic()
    assert _ask(client, sent) == sent
    slow = time.monotonic() - began

    assert late >= 0.4
    assert slow >= len(sent) / 200_000  # both ways at once, but for the first and last chunk
    assert link.struck == link.bytes_delayed == 2 * (4 + len(sent))


def test_hold_delivers_late(server: _Server, link: TcpProxy, client: socket.socket) -> None:
    """Held data arrives complete when the link is opened, although its sender is gone."""
    link.hold()
    client.sendall(b" late")
    wait_for(lambda: link.bytes_withheld == 5, lambda: str(link.bytes_withheld), LIMIT_S)
    client.close()
    assert server.arrived == b"first"
    link.open()

    wait_for(lambda: server.arrived == b"first late", lambda: str(server.arrived), LIMIT_S)
    wait_for(lambda: server.ended == 1, lambda: "the end did not arrive", LIMIT_S)
