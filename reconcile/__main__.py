"""``python -m reconcile``."""

import sys
from typing import NoReturn

from ringfence_kafka.loading import quiet_end, quiet_interrupt


def main() -> NoReturn:
    """Load the job, and run it."""
    with quiet_interrupt():
        from reconcile.job import main as run  # noqa: PLC0415
    with quiet_end():
        sys.exit(run())


if __name__ == "__main__":
    main()
