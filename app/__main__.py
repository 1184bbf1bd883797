"""The ``ringfence`` program, also ``python -m app``."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Load the command line, and run it."""
    try:
        from app.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
