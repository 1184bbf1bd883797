import socket
import subprocess
import sys

import pytest

from app.embedded import ports
from ringfence_kafka.errors import PrerequisiteError

HOST = "127.0.0.1"
_ASKS = f"""
import sys
from app.embedded import ports
ports._RANGE = range(int(sys.argv[1]), int(sys.argv[1]) + 1)
ports.choose("{HOST}")
"""
"""Another process, for which there is this one port only."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody could listen beside what holds it")
def test_nobody_else_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port is given once, and who it was chosen for listens there again and again."""
    port = ports.choose(HOST)
    for _ in range(2):
        with socket.create_server((HOST, port)), socket.create_connection((HOST, port)):
            pass
    done = subprocess.run(
        [sys.executable, "-c", _ASKS, str(port)], capture_output=True, text=True, check=False
    )
    assert "no free port" in done.stderr
    with socket.socket() as client, pytest.raises(OSError, match="in use"):
        client.bind((HOST, port))
    monkeypatch.setattr(ports, "_RANGE", range(port, port + 1))
    with pytest.raises(PrerequisiteError, match="no free port"):
        ports.choose(HOST)


def test_a_port_on_which_somebody_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port is not held if nobody else could listen beside its holder."""
    with socket.create_server((HOST, 0)) as other, monkeypatch.context() as patch:
        port = other.getsockname()[1]
        patch.setattr(ports, "_RANGE", range(port, port + 1))
        with pytest.raises(PrerequisiteError, match="no free port"):
            ports.choose(HOST)
    monkeypatch.setattr(ports, "_fault", lambda *_: OSError())
    port = ports.choose(HOST)
    assert ports._held[port] is None
    socket.create_server((HOST, port)).close()
