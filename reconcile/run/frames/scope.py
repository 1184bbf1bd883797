"""Base and offset range of a run, from the cluster's answers."""

from collections.abc import Callable, Mapping

from reconcile.cluster.survey import Survey
from reconcile.run.history import cut, renames, retained_files, rules
from reconcile.run.history.history import Run, RunHistory
from ringfence_kafka.config.settings import Settings


def begin_run(
    settings: Settings, runs: RunHistory, survey: Survey
) -> tuple[Run | None, dict[str, cut.AddressCut]]:
    """Return the run to continue from, and the cuts of this run.

    If nothing has changed, the run judges the range of the last run again, unless evidence of it was deleted
    since. Raises PrerequisiteError if files of earlier runs are missing.
    """
    base, cuts = _begin(settings, runs, survey)
    retained_files.refuse_missing(runs, base, cuts)
    return base, cuts


def _begin(
    settings: Settings, runs: RunHistory, survey: Survey
) -> tuple[Run | None, dict[str, cut.AddressCut]]:
    base, cuts = _from(settings, runs, survey, runs.settled_base)
    own = {address.name: rules.kept(address) for address in settings.addresses}
    again = runs.again(cut.positions(cuts), own)
    if again is not None:
        before, older = _from(settings, runs, survey, lambda: runs.base_of(again))
        # Without an offset of the workers, a cut ends where its base does: not before the end of the last run.
        whole = runs.again(cut.positions(older), own) is not None
        if whole and not any(value.lost for value in older.values()):
            return before, older
        base, cuts = _from(settings, runs, survey, runs.settled_base)
    return base, cuts


def _from(
    settings: Settings, runs: RunHistory, survey: Survey, begin: Callable[[], Run | None]
) -> tuple[Run | None, dict[str, cut.AddressCut]]:
    """Return a base with the present names of its addresses, and the cuts of the next run."""
    runs.rename({})
    runs.rename(renames.renamed(settings.addresses, begin()))
    base = begin()
    positions = cut.positions_of(settings.addresses, base.positions, base.rules) if base else {}
    cuts = survey.cuts(settings.addresses, positions, runs.seen_since(base))
    return base, renames.with_former(cuts, runs.former)


def records(cuts: Mapping[str, cut.AddressCut]) -> int:
    """Return an upper bound of the records within the cuts."""
    return sum(
        span.cut - span.read_from
        for cut in cuts.values()
        for topic in cut.topics().values()
        for span in topic.spans
    )
