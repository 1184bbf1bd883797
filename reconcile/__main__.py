"""``python -m reconcile``."""

import sys

from ringfence_kafka.loading import quiet_interrupt


def main() -> int:
    """Load the job, and run it."""
    with quiet_interrupt():
        from reconcile.job import main as run  # noqa: PLC0415
    return run()


if __name__ == "__main__":
    sys.exit(main())
