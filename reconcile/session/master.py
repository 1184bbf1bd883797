"""Checks Spark's master before Spark starts, because Spark retries a missing one for a minute."""

import re
import socket
import threading
from typing import Final

from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

CONNECT_LIMIT_S: Final = 5.0
_STANDALONE: Final = "spark://"
_PLACE: Final = r"(\[[0-9A-Fa-f:]+\]|[^][,:/\s]+):\d+"
_KNOWN: Final = re.compile(
    rf"local(\[(\*|[1-9]\d*)( *, *[1-9]\d*)?\])?|local-cluster\[.*\]|yarn|k8s://.+|spark://{_PLACE}(,{_PLACE})*"
)


def check(master: str) -> None:
    """Check the URL, and that one of its addresses answers.

    Kubernetes may be behind a proxy, and YARN has its own configuration. Spark itself reports their problems
    soon enough.

    Raises:
        ConfigurationError: Spark does not support such a URL.
        PrerequisiteError: No address answers.
    """
    if not _KNOWN.fullmatch(master):
        raise ConfigurationError(
            f"{_named(master)}: that is not a master of Spark: write local[*], local[4], spark://HOST:7077, "
            "yarn or k8s://https://HOST:PORT"
        )
    if not master.startswith(_STANDALONE):
        return
    places = [part.rpartition(":") for part in master.removeprefix(_STANDALONE).split(",")]
    tried = [_Attempt(host, int(port)) for host, _, port in places]
    for attempt in tried:
        attempt.thread.start()
    for attempt in tried:
        attempt.thread.join(CONNECT_LIMIT_S)
    if not any(attempt.reached for attempt in tried):
        raise PrerequisiteError(
            f"{_named(master)}: no program listens there ({'; '.join(attempt.fault for attempt in tried)}): "
            "start Spark's master, or correct the address"
        )


def _named(master: str) -> str:
    return f"Spark's master {master!r} (--master, or reconcile.master)"


class _Attempt:
    """Connection attempt in its own thread, because name look-ups ignore time limits and signals."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host.strip("[]"), port
        self.reached = False
        self.fault = f"no answer within {CONNECT_LIMIT_S:g} s"
        self.thread: Final = threading.Thread(target=self._run, name="master", daemon=True)

    def _run(self) -> None:
        try:
            socket.create_connection((self._host, self._port), CONNECT_LIMIT_S).close()
        except (OSError, OverflowError) as error:
            self.fault = getattr(error, "strerror", None) or str(error)
        else:
            self.reached = True
