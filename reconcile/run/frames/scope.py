"""Where a night begins, and what it covers, by what the cluster says of its topics."""

from collections.abc import Callable, Mapping

from reconcile.cluster.survey import Survey
from reconcile.run.history import cut, renames, retained, rules
from reconcile.run.history.history import Run, RunHistory
from ringfence_kafka.config.settings import Settings


def begin(
    settings: Settings, nights: RunHistory, survey: Survey
) -> tuple[Run | None, dict[str, cut.AddressCut]]:
    """The night that this one goes on from, and what it covers.

    Where nothing has moved it is the last night once more; but not where evidence has gone since that had been judged.

    Raises:
        PrerequisiteError: what earlier nights have left is not all there.
    """
    base, cuts = _begin(settings, nights, survey)
    retained.refuse_missing(nights, base, cuts)
    return base, cuts


def _begin(
    settings: Settings, nights: RunHistory, survey: Survey
) -> tuple[Run | None, dict[str, cut.AddressCut]]:
    base, cuts = _from(settings, nights, survey, nights.settled_base)
    again = nights.again(
        cut.positions(cuts), {address.name: rules.kept(address) for address in settings.addresses}
    )
    if again is not None:
        before, older = _from(settings, nights, survey, lambda: nights.base_of(again))
        if not any(value.lost for value in older.values()):
            return before, older
        base, cuts = _from(settings, nights, survey, nights.settled_base)
    return base, cuts


def _from(
    settings: Settings, nights: RunHistory, survey: Survey, begin: Callable[[], Run | None]
) -> tuple[Run | None, dict[str, cut.AddressCut]]:
    """A night, its addresses called as they are now, and what one covers that goes on from it."""
    nights.former = {}
    nights.former = renames.renamed(settings.addresses, begin())
    base = begin()
    positions = cut.positions_of(settings.addresses, base.positions, base.rules) if base else {}
    cuts = survey.cuts(settings.addresses, positions, nights.seen_since(base))
    return base, renames.with_former(cuts, nights.former)


def records(cuts: Mapping[str, cut.AddressCut]) -> int:
    """How many it reads at most."""
    return sum(
        span.cut - span.read_from
        for cut in cuts.values()
        for topic in cut.topics().values()
        for span in topic.spans
    )
