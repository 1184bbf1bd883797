"""``python -m reconcile``."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Load the job, and run it."""
    try:
        from reconcile.job import main as run  # noqa: PLC0415 - it takes a second
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


if __name__ == "__main__":
    main()
