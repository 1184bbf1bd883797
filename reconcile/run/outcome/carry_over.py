"""State that a run leaves to the next run. Pure.

An address that is not configured keeps its state, because it may come back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconcile.run.history import cut
from reconcile.run.history.cut import AddressCut, Position
from reconcile.run.history.history import Run, added
from reconcile.run.history.rings import Rings
from reconcile.run.history.rules import evidence_deleted, kept, whole_since
from reconcile.run.measures.counts import Judgement
from reconcile.run.outcome import report_model
from ringfence_kafka.config.settings import Settings


def finished_run(
    settings: Settings,
    base: Run | None,
    cuts: Mapping[str, AddressCut],
    found: Judgement,
    document: Mapping[str, Any],
    today: str,
    journal: dict[str, Position],
    events_from: Mapping[str, int],
    cluster: str,
    rings: Sequence[Rings],
) -> Run:
    """Return the run to keep. ``base``: the one it continues; ``document``: content of ``summary.json``."""
    names = [address.name for address in settings.addresses]
    number = document["night"]
    before = base or Run(0, None, today, "")
    known = {name: {} if evidence_deleted(cuts[name]) else before.known.get(name, {}) for name in names}
    known = added([known, found.accepted])
    whole = complete(settings, base, cuts)
    for address, of in zip(settings.addresses, rings, strict=True):
        largest = found.largest.get(address.name, address.ring_capacity)
        ids = known.get(address.name, {})
        # each lane accepted a full ring of IDs since evidence was last missing
        whole[address.name] |= all(ids.get(ring, 0) >= largest for ring in of.now)
    recreated = {name: cut.input.recreated for name, cut in cuts.items()}
    return Run(
        number,
        base.number if base else None,
        today,
        document["verdict"],
        positions=cut.positions_of(settings.addresses, before.positions, before.rules)
        | cut.positions(cuts)
        | journal,
        accepted=found.accepted,
        known=before.known | known,
        complete=before.complete | whole,
        summary=dict(document),
        held=before.held | report_model.held(base, found, recreated),
        consumed=before.consumed
        | {name: dict(enumerate(cut.forward_committed)) for name, cut in cuts.items()},
        earliest={name: first for name, (first, _) in found.times.items()},
        app=settings.app.id,
        rules=before.rules | {address.name: kept(address) for address in settings.addresses},
        whole_since=before.whole_since
        | {name: whole_since(name, cuts[name], base, number) for name in names},
        left={name: before.left_by(name) for name in before.complete} | dict.fromkeys(names, number),
        events_from=dict(events_from),
        cluster=cluster,
    )


def complete(settings: Settings, base: Run | None, cuts: Mapping[str, AddressCut]) -> dict[str, bool]:
    """Return address → whether all IDs that its rings may hold are known.

    If not, some lanes may still be complete: :func:`reconcile.run.history.rules.lanes_whole`.
    """
    return {
        address.name: (base is None or base.complete.get(address.name, True))
        and not evidence_deleted(cuts[address.name])
        for address in settings.addresses
    }


def events_from(
    base: Run | None, cuts: Mapping[str, AddressCut], journal: Mapping[str, Position]
) -> dict[str, int]:
    """Return address → offset of its first event in the journal: earlier events concern a deleted input."""
    if base is None:
        return {}
    (name, now), *_ = journal.items()
    before = base.positions.get(name)
    if before is None or before.topic_id != now.topic_id:
        return {}
    return dict(base.events_from) | {
        name: max(before.ends, default=0) for name, cut in cuts.items() if base.judged_another(cut.input)
    }
