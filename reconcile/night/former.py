"""Where earlier versions kept the nights: in a folder of the working directory, whatever ``app.data_dir`` said."""

import shlex
from pathlib import Path
from typing import Final

from reconcile.cluster.survey import Survey
from reconcile.night.nights import NIGHTS, Nights
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError

FORMER: Final = Path("data/reconcile")


def refuse_unless_moved(settings: Settings, survey: Survey, nights: Nights) -> None:
    """Begin no first night where there are earlier ones of this very application and cluster.

    Nights tell the IDs of their topics, which no two clusters have in common.

    Raises:
        ConfigurationError: they are still where an earlier version has kept them; with the way to move them.
    """
    folder = settings.nights_dir
    if settings.reconcile.state_dir or nights.last is not None or not hint(folder):
        return
    last = Nights.load(LocalFiles(str(FORMER))).last
    if last is None or last.app not in {"", settings.app.id}:
        return
    if any(
        name in survey.topics and survey.topics[name].id == each.topic_id
        for name, each in last.positions.items()
    ):
        raise ConfigurationError(
            f"the runs up to now are in {FORMER}, where earlier versions kept them, and belong into {folder}, which has none: "
            f'move them (mv {FORMER}/* {shlex.quote(folder)}/), or set reconcile.state_dir = "{FORMER}" to leave them there; '
            f'to begin anew, set reconcile.state_dir = "{folder}"'
        )


def hint(folder: str) -> str:
    """What to add where nights are missed in ``folder``; empty where none are in the former place, or it is the same."""
    if not (FORMER / NIGHTS).is_dir() or FORMER.resolve() == Path(folder).resolve():
        return ""
    return f" (earlier versions kept them in {FORMER})"
