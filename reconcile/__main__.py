"""Entry point of ``python -m reconcile``."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Import and run the job. Ctrl-C during the import exits without a traceback."""
    try:
        from reconcile.job import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


if __name__ == "__main__":
    main()
