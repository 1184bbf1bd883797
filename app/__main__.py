"""Entry point of ``ringfence``, also ``python -m app``."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Import and run the command line. Ctrl-C during the import exits without a traceback."""
    try:
        from app.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
