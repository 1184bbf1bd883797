"""A first attempt with Quix Streams: a filter over its state, exactly-once. Runs in an environment of its own, bench/requirements.lock.

Its state is by record key, so resends of a group are found whatever partition it is; IDs are never forgotten, which is less work
than a ring. The commit interval is Kafka Streams' own, 100 ms: with its default of 5 s no message would come out sooner.
"""

import argparse
from pathlib import Path
from typing import Any, Final

from quixstreams import Application

ID_HEADER: Final = "_AMQ_DUPL_ID"
COMMIT_S: Final = 0.1


def is_new(_value: bytes, _key: Any, _timestamp: int, headers: Any, state: Any) -> bool:
    """Whether its ID is not known; from now on it is."""
    identity = next(value for name, value in headers if name == ID_HEADER).decode()
    if state.exists(identity):
        return False
    state.set(identity, 1)
    return True


def main() -> None:
    """Read the command line and run until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "input", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    app = Application(
        broker_address=options.bootstrap,
        consumer_group=options.group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=COMMIT_S,
        state_dir=str(options.data),
        producer_extra_config={"batch.size": 512 * 1024},
        loglevel="WARNING",
    )
    raw = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
    source = app.topic(options.input, **raw)
    target = app.topic(options.output, key_serializer="bytes", value_serializer="bytes")
    frame = app.dataframe(source)
    frame = frame.filter(is_new, stateful=True, metadata=True)
    frame.to_topic(target)
    app.run()


if __name__ == "__main__":
    main()
