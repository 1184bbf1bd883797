"""A handler whose effect happens exactly once, even if a crash repeats the message.

One transaction of the handler's own store contains the effect and the place of its message. A repeated message finds its place taken.
Run it with ``ringfence consume orders --handler examples.once:handle …``.
"""

import os
import sqlite3
import threading

from ringfence_client import Message

_connections = threading.local()


def handle(message: Message) -> None:
    """Add the message to the account of its group, once."""
    store = _store()
    with store:  # one transaction: both or neither
        # The insert locks the store before it looks. A late holder of the partition waits here.
        place = store.execute(
            "INSERT INTO done VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            # Parts of a transaction share their source. An operator may redrive a dead letter several times.
            (message.source, str(message.part or ""), message.redriven),
        )
        if not place.rowcount:
            return  # a repeated message: its effect is there
        store.execute(
            "INSERT INTO balance VALUES (?, 1) ON CONFLICT (account) DO UPDATE SET messages = messages + 1",
            (message.group or b"",),
        )


def _store() -> sqlite3.Connection:
    store: sqlite3.Connection | None = getattr(_connections, "store", None)
    if store is None:
        store = _connections.store = sqlite3.connect(os.environ.get("ONCE_DATABASE", "once.db"), timeout=30)
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("CREATE TABLE IF NOT EXISTS balance (account BLOB PRIMARY KEY, messages INTEGER)")
        store.execute(
            "CREATE TABLE IF NOT EXISTS done "
            "(source TEXT, part TEXT, redriven INTEGER, PRIMARY KEY (source, part, redriven))"
        )
    return store
