"""A first attempt with Faust: an agent, an event at a time, Faust's own ``exactly_once``, a table of seen IDs.

It is neither fast nor, in spite of the name of its setting, exact: Faust puts the outputs outside the
transaction. Its figures are reported as they are.
"""

import argparse
import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Final

import faust

from bench.measure import REPORT

REPORT_EVERY: Final = 100


def create_app(options: argparse.Namespace) -> faust.App:
    """Build the app as Faust's own guide has it; nothing is tuned. It reports its progress, as its commits are seconds apart."""
    app = faust.App(
        options.group,
        autodiscover=False,
        broker=f"kafka://{options.bootstrap}",
        consumer_auto_offset_reset="earliest",
        datadir=options.data,
        processing_guarantee="exactly_once",
        store="rocksdb://",
        topic_disable_leader=True,
        topic_partitions=options.partitions,
        topic_replication_factor=1,
        web_enabled=False,
    )
    raw: dict[str, Any] = {
        "key_type": bytes,
        "value_type": bytes,
        "key_serializer": "raw",
        "value_serializer": "raw",
    }
    source = app.topic(options.input, **raw)
    target = app.topic(options.output, **raw)
    seen = app.Table("seen", key_type=str, value_type=int, partitions=options.partitions)

    async def deduplicate(stream: Any) -> None:
        finished = 0
        async for event in stream.events():
            identity = event.headers["_AMQ_DUPL_ID"].decode()
            if identity not in seen:
                seen[identity] = 1
                await target.send(key=event.key, value=event.value, headers=event.headers)
            finished += 1
            if finished % REPORT_EVERY == 0:
                os.write(1, REPORT + b"%d\n" % finished)  # Faust turns print into logging

    app.agent(source)(deduplicate)
    return app


def main() -> None:
    """Read the command line and run until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "input", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    app = create_app(parser.parse_args())
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    faust.Worker(app, loop=loop, loglevel=logging.WARNING, quiet=True).execute_from_commandline()


if __name__ == "__main__":
    main()
