"""What a night hands to the next one: pure.

An address that is not configured tonight keeps what was handed on for it: it may come back.
"""

from collections.abc import Mapping
from typing import Any

from reconcile.run.history import cut
from reconcile.run.history.cut import AddressCut, Position
from reconcile.run.history.history import Run, added
from reconcile.run.history.rules import ids_gone, kept, whole_since
from reconcile.run.measures.counts import Judgement
from reconcile.run.outcome import report_model
from ringfence_kafka.config.settings import Settings


def night(
    settings: Settings,
    base: Run | None,
    cuts: Mapping[str, AddressCut],
    found: Judgement,
    document: Mapping[str, Any],
    today: str,
    journal: Mapping[str, Position],
    events_from: Mapping[str, int],
    cluster: str,
) -> Run:
    """The night, as it is to be kept.

    Args:
        settings: Of now.
        base: The night that it goes on from.
        cuts: What it covers.
        found: What was found.
        document: ``summary.json``.
        today: The day on which it began.
        journal: Where the journal ends, by its name.
        events_from: As :func:`events_from` has it.
        cluster: Kafka's ID of it.
    """
    names = [address.name for address in settings.addresses]
    gone = {name: ids_gone(cuts[name]) for name in names}
    total = added(
        [
            {name: {} if gone[name] or base is None else base.known.get(name, {}) for name in names},
            found.accepted,
        ]
    )
    known_all = complete(settings, base, cuts)
    recreated = {name: cut.input.recreated for name, cut in cuts.items()}
    before = base or Run(0, None, today, "", {}, {}, {}, {}, {})
    left = {name: before.left_by(name) for name in before.complete}
    return Run(
        document["night"],
        base.number if base else None,
        today,
        document["verdict"],
        {
            **cut.positions_of(settings.addresses, before.positions, before.rules),
            **cut.positions(cuts),
            **journal,
        },
        found.accepted,
        {**before.known, **total},
        {
            **before.complete,
            **{
                address.name: known_all[address.name]
                or _full(
                    total.get(address.name, {}),
                    cuts[address.name],
                    found.largest.get(address.name, address.id_cache_size),
                )
                for address in settings.addresses
            },
        },
        dict(document),
        held={**before.held, **report_model.held(base, found, recreated)},
        consumed={
            **before.consumed,
            **{name: dict(enumerate(cut.forward_committed)) for name, cut in cuts.items()},
        },
        earliest={name: first for name, (first, _) in found.times.items()},
        app=settings.app.id,
        rules={**before.rules, **{address.name: kept(address) for address in settings.addresses}},
        whole_since={
            **before.whole_since,
            **{name: whole_since(name, cuts[name], base, document["night"]) for name in names},
        },
        left={**left, **dict.fromkeys(names, document["night"])},
        events_from=dict(events_from),
        cluster=cluster,
    )


def complete(settings: Settings, base: Run | None, cuts: Mapping[str, AddressCut]) -> dict[str, bool]:
    """Address → whether all IDs that its rings may hold are known: a duplicate of nothing is then nothing else.

    Of some lanes they may be, where they are not of all: :func:`reconcile.run.history.rules.lanes_whole`.
    """
    return {
        address.name: (base is None or base.complete.get(address.name, True))
        and not ids_gone(cuts[address.name])
        for address in settings.addresses
    }


def _full(known: Mapping[int, int], cut: AddressCut, largest: int) -> bool:
    """Whether each lane has accepted as many IDs as its ring can ever have held since evidence was missing."""
    return all(known.get(lane, 0) >= largest for lane in range(len(cut.input.spans)))


def events_from(
    base: Run | None, cuts: Mapping[str, AddressCut], journal: Mapping[str, Position]
) -> dict[str, int]:
    """Address → where in the journal its events begin: what stands before is of an input that was deleted."""
    if base is None:
        return {}
    (name, now), *_ = journal.items()
    before = base.positions.get(name)
    if before is None or before.topic_id != now.topic_id:
        return {}
    return dict(base.events_from) | {
        name: max(before.ends, default=0) for name, cut in cuts.items() if base.judged_another(cut.input)
    }
