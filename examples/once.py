"""A handler whose effect happens exactly once, redelivery after a crash included.

The effect and the place of the message that caused it are written in one transaction of the handler's own store. A
message that comes again finds its place taken. Run it with ``ringfence consume orders --handler examples.once:handle …``.
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
        # Before the look, or a late holder of the partition could look too before this one has written.
        store.execute("BEGIN IMMEDIATE")
        group = message.group or b""
        if message.redriven:
            # It comes behind later ones of its group: their offsets tell nothing of it.
            try:
                store.execute("INSERT INTO redriven VALUES (?, ?)", (message.source, message.redriven))
            except sqlite3.IntegrityError:
                return  # it came again: its effect is there
            _add(store, group)
            return
        applied = store.execute("SELECT last FROM applied WHERE account = ?", (group,)).fetchone()
        if applied is not None and message.offset <= applied[0]:
            return  # it came again: its effect is there
        _add(store, group)
        store.execute(
            "INSERT INTO applied VALUES (?, ?, ?) ON CONFLICT (account) DO UPDATE SET last = excluded.last, "
            "source = excluded.source",
            (group, message.offset, message.source),
        )


def _add(store: sqlite3.Connection, group: bytes) -> None:
    store.execute(
        "INSERT INTO balance VALUES (?, 1) ON CONFLICT (account) DO UPDATE SET messages = messages + 1",
        (group,),
    )


def _store() -> sqlite3.Connection:
    """Return a connection of this thread's."""
    store: sqlite3.Connection | None = getattr(_connections, "store", None)
    if store is None:
        store = _connections.store = sqlite3.connect(os.environ.get("ONCE_DATABASE", "once.db"), timeout=30)
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("CREATE TABLE IF NOT EXISTS balance (account BLOB PRIMARY KEY, messages INTEGER)")
        store.execute(
            "CREATE TABLE IF NOT EXISTS applied (account BLOB PRIMARY KEY, last INTEGER, source TEXT)"
        )
        store.execute(
            "CREATE TABLE IF NOT EXISTS redriven (source TEXT, number INTEGER, PRIMARY KEY (source, number))"
        )
    return store
