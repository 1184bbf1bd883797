"""``python -m reconcile``."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Import the job, then run it."""
    try:
        from reconcile.job import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


if __name__ == "__main__":
    main()
