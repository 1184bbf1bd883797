"""Fetches the embedded broker's files once on a machine: ``python -m app.embedded``, also in ``make setup``."""

import tempfile
from pathlib import Path

import click

from app.embedded import classes, jars
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.process import java


def archive_classes(version: str) -> None:
    """Run a broker once to archive its classes, so that later starts are faster.

    If writing fails, it prints why.

    Raises:
        PrerequisiteError: Java or the jars are missing.
    """
    class_path = jars.class_path(bundle=jars.kafka(version))
    target = classes.archive(java.find(), class_path)
    if target.is_file():
        return
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=target.parent) as scratch:
        written = Path(scratch) / target.name
        try:
            with EmbeddedBroker(Path(scratch) / "broker", version=version, archive=written):
                pass
            for former in target.parent.glob(classes.archives(class_path)):
                former.unlink(missing_ok=True)
            written.rename(target)
        except (PrerequisiteError, OSError) as error:
            click.echo(f"no archive of the broker's classes, it takes longer to start: {error}", err=True)


def main() -> None:
    """Fetch missing files and print their folder."""
    try:
        version = jars.chosen_version()
        folder = jars.resolve(bundle=jars.kafka(version))
        archive_classes(version)
    except PrerequisiteError as error:
        click.echo(str(error), err=True)
        raise SystemExit(error.exit_code) from error
    click.echo(f"Kafka {version}: {len(list(folder.glob('*.jar')))} jars in {folder}")


if __name__ == "__main__":
    main()
