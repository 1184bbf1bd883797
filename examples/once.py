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
        # Lock before the read. Otherwise a late holder of the partition could read too before this one has written.
        store.execute("BEGIN IMMEDIATE")
        group = message.group or b""
        if message.redriven:
            # It comes after later messages of its group, so their offsets say nothing about it.
            try:
                store.execute("INSERT INTO redriven VALUES (?, ?)", (message.source, message.redriven))
            except sqlite3.IntegrityError:
                return  # a repeated message: its effect is there
            _add(store, group)
            return
        applied = store.execute("SELECT last FROM applied WHERE account = ?", (group,)).fetchone()
        if applied is not None and message.offset <= applied[0]:
            return  # a repeated message: its effect is there
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
