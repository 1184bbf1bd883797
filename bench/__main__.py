"""``python -m bench``: see README.md beside this file."""

import signal
import sys
from typing import Final

from confluent_kafka import KafkaException

from bench import bridging, consume, handover, lanes, latency, reconcile, recovery, rings
from bench.comparison import command as main
from bench.errors import BenchError
from ringfence_kafka.errors import RingfenceError

EXIT_COULD_NOT_RUN: Final = 2
EXIT_TERMINATED: Final = 143

for module_type in (latency, recovery, rings, consume, reconcile, lanes, bridging, handover):
    main.add_command(module_type.command)


def _terminated(*_: object) -> None:
    """End as after an exception, so that every process that was started is ended too."""
    sys.exit(EXIT_TERMINATED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    try:
        main()
    except (BenchError, KafkaException, RingfenceError) as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(EXIT_COULD_NOT_RUN)
