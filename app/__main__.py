"""The ``ringfence`` program, also ``python -m app``."""

from typing import NoReturn

from ringfence_kafka.loading import quiet_end, quiet_interrupt


def main() -> NoReturn:
    """Load the command line, and run it."""
    with quiet_interrupt():
        from app.cli import main as run  # noqa: PLC0415
    with quiet_end():
        run()


if __name__ == "__main__":
    main()
