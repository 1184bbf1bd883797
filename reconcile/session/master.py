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
    faults = dict.fromkeys(
        master.removeprefix(_STANDALONE).split(","), f"no answer within {CONNECT_LIMIT_S:g} s"
    )
    attempts = [
        threading.Thread(target=_connect, args=(place, faults), name="master", daemon=True)
        for place in faults
    ]
    for attempt in attempts:
        attempt.start()
    for attempt in attempts:
        attempt.join(CONNECT_LIMIT_S)
    if all(faults.values()):
        raise PrerequisiteError(
            f"{_named(master)}: no program listens there ({'; '.join(faults.values())}): "
            "start Spark's master, or correct the address"
        )


def _connect(place: str, faults: dict[str, str]) -> None:
    """Note why a place does not answer, in a thread of its own: name look-ups ignore time limits and signals."""
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_LIMIT_S).close()
    except (OSError, OverflowError) as error:
        faults[place] = getattr(error, "strerror", None) or str(error)
    else:
        faults[place] = ""


def _named(master: str) -> str:
    return f"Spark's master {master!r} (--master, or reconcile.master)"
