"""A store that refuses the effects of a holder that was considered dead and continues.

Kafka refuses such a holder's acknowledgements. A store must refuse its other effects: here a table keeps the highest fencing token of each
partition. One statement compares and raises it, in the transaction of the effect. Run it with ``ringfence consume orders --handler
examples.fenced:handle …``.
"""

import os
import sqlite3
import threading

from ringfence_client import Message

_connections = threading.local()


class LateHolderError(Exception):
    """The partition has another holder now."""


def handle(message: Message) -> None:
    """Add the message to the account of its group: once, and only under the newest token."""
    store = _store()
    with store:  # one transaction: all or nothing
        place = f"{message.topic}/{message.partition}"
        fenced = store.execute(
            "INSERT INTO holder VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET fence = excluded.fence "
            "WHERE excluded.fence >= fence",
            (place, message.fence),
        )
        if not fenced.rowcount:
            raise LateHolderError(
                f"{place} offset {message.offset}: token {message.fence} is not the newest, its effect is refused; whoever "
                "has the partition now does it (where the progress topic was created again, empty the table holder)"
            )
        store.execute(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?) ON CONFLICT (source, part) DO NOTHING",
            (message.source, str(message.part or ""), message.group or b"", message.value, message.fence),
        )


def _store() -> sqlite3.Connection:
    store: sqlite3.Connection | None = getattr(_connections, "store", None)
    if store is None:
        store = _connections.store = sqlite3.connect(
            os.environ.get("FENCED_DATABASE", "fenced.db"), timeout=30
        )
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("CREATE TABLE IF NOT EXISTS holder (place TEXT PRIMARY KEY, fence INTEGER)")
        store.execute(
            "CREATE TABLE IF NOT EXISTS entry "
            "(source TEXT, part TEXT, account BLOB, value BLOB, fence INTEGER, PRIMARY KEY (source, part))"
        )
    return store
