"""Sentences of advice that follow from an audit. Pure."""

import shlex
from collections.abc import Iterator
from typing import Final

from reconcile.audit.configuration import obvious_group_header
from reconcile.audit.partitioner import EXPLAINED_MIN
from reconcile.audit.result import Audit, Resends
from reconcile.page.advice import SPAN_MIN_MS, over, too_short
from ringfence_kafka.wording import counted

_LARGE_SHARE: Final = 0.5
_SKEWED: Final = 1.5
_FEW_KEYS: Final = 20
_UNIQUE: Final = 0.9
_NAMED_MAX: Final = 5
_NAME_MAX: Final = 60


def notes(audit: Audit) -> list[str]:
    """Return whole sentences, the most important first."""
    if not audit.records:
        return [*_nothing(audit), *_compacted(audit)]
    parts = (
        _compacted, _meaning, _transactions, _bridges, _instead, _across, _partitioner, _groups, _contents, _limits,
    )  # fmt: skip
    return [sentence for part in parts for sentence in part(audit)]


def _nothing(audit: Audit) -> Iterator[str]:
    part, extents = audit.topic.part, audit.topic.extents.values()
    if part.offsets:
        yield (
            f"{audit.topic.name}: none of the {part.offsets:,} offsets that were read holds a record: they "
            "are transaction markers or aborted records."
        )
    elif any(extent.start < extent.end for extent in extents):
        yield (
            f"{audit.topic.name} has no record in {part.asked}: ask for more with --since or --last, or for all of it."
            if any(extent.start < extent.stable for extent in extents)
            else f"{audit.topic.name} has only records of transactions that are still open: run again when they have ended."
        )
    elif any(extent.end for extent in extents):
        yield f"{audit.topic.name} is empty: retention deleted all {sum(extent.end for extent in extents):,} records."
    else:
        yield f"{audit.topic.name} is empty: nothing was ever written to it."
    yield "Resends are unknown: run this again when there is traffic."


def _compacted(audit: Audit) -> Iterator[str]:
    if audit.topic.compacted:
        yield (
            f"{audit.topic.name} has cleanup.policy={audit.topic.cleanup_policy}: compaction keeps the last record of a key and "
            "deletes the others, so it hides resends (these numbers are lower bounds), and it would delete messages of a "
            "group: Ringfence refuses a compacted topic as input and as accepted topic. Use one with cleanup.policy=delete."
        )
    elif audit.topic.cleanup_policy is None:
        yield (
            "It is unknown whether the topic is compacted; this user may lack DescribeConfigs. If it is, "
            "Ringfence refuses it, and these numbers are lower bounds."
        )


def _meaning(audit: Audit) -> Iterator[str]:
    found = audit.found
    refused = audit.settings.duplicate_id_missing == "quarantine"
    if not found.with_id:
        keys = audit.settings
        forms = keys.duplicate_id_from
        where = f"headers {', '.join(keys.duplicate_id_headers)}" if forms == "header" else forms
        where = where if isinstance(where, str) else f"parts {', '.join(where)}, all of them"
        then = "put everything into quarantine" if refused else "let everything pass, unchecked"
        yield f"No record has an ID (looked for in the {where}): as it is, Ringfence would {then}."
        return
    if found.with_id < audit.records:
        then = "go to quarantine" if refused else "pass unchecked"
        yield f"{_share(audit.records - found.with_id, audit.records)} of the records have no ID: they would {then}."
    if not found.resends:
        yield (
            f"No ID occurs twice among {found.with_id:,}: the ring size cannot be measured, so "
            f"id_cache_size stays {audit.settings.id_cache_size:,}."
        )
        return
    day = audit.a_day(found.resends)
    yield (
        f"Resends: {counted(found.resends, 'record')} of {audit.records:,} ({_share(found.resends, audit.records)}) whose ID occurred before."
        + (f" That is {day:,.0f} a day." if day is not None else "")
    )
    if found.needed:
        yield _size(audit)


def _size(audit: Audit) -> str:
    """Return the size to configure, the reasons, and how many resends it would drop."""
    found, day = audit.found, audit.a_day(audit.found.within_needed)
    need = f"{float(audit.confidence) * 100:g} % of the resends that a ring can know need {found.needed:,}"
    drops = (
        f"A ring of {found.needed:,} would drop {found.within_needed:,} of the {found.resends:,}{'' if day is None else f', {day:,.0f} a day'}; the present "
        f"{audit.settings.id_cache_size:,} would drop {found.within_capacity:,}."
    )
    if audit.recommended is None:
        return f"No id_cache_size is recommended: {too_short(audit.span_ms)}. Here {need}. {drops}"
    return f"Set id_cache_size = {audit.recommended}: {need} {over(audit.span_ms)}. {drops}"


def _instead(audit: Audit) -> Iterator[str]:
    """Yield suggestions for other IDs if no record has one."""
    if audit.found.with_id:
        return
    for other in audit.others:
        yield _other_id(audit, other)
    likely = [seen for seen in audit.headers if seen.values >= _UNIQUE * seen.records and seen.records > 1]
    if likely:
        names = ", ".join(seen.name for seen in likely[:_NAMED_MAX])
        yield (
            f"Of the headers, {names} has a value of its own in nearly each of the {audit.headers_sample:,} "
            "records looked at: if a producer keeps it when it sends a message again, try --id-header "
            f"{shlex.quote(likely[0].name)}."
        )
    elif audit.headers:
        yield f"The headers that are there ({', '.join(header.name for header in audit.headers[:_NAMED_MAX])}) repeat too much to be IDs."
    elif audit.others:
        yield "The records have no headers at all."


def _other_id(audit: Audit, found: Resends) -> str:
    by_key = found.id_from == "key"
    if not found.with_id:
        return f"By {found.id_from}: no record has one."
    repeat = "would be resends" if by_key else "repeat an earlier one byte for byte"
    text = f"By {found.id_from}: {found.resends:,} of {found.with_id:,} records {repeat} ({_share(found.resends, audit.records)})."
    if by_key and not found.resends:
        return f"{text} Each key is there once: keys may be IDs (--id-from key)."
    if by_key:
        return f"{text} Equal keys usually are groups, not IDs: each message of a group but the first would be dropped."
    if not found.resends:
        return f"{text} A message that is sent again has another value."
    size = audit.size(found)
    ring = f"a ring of {found.needed:,}" if size is None else f"id_cache_size = {size}"
    return (
        f"{text} Resends, or messages that are alike (a reading that did not change)? If two equal messages never mean two "
        f'things here, duplicate_id_from = "value" (--id-from value) with {ring} would drop at least {found.within_needed:,}.'
    )


def _across(audit: Audit) -> Iterator[str]:
    found = audit.found
    if found.cross_lane:
        yield (
            f"{counted(found.cross_lane, 'resend')} ({_share(found.cross_lane, found.resends)}) with another group than the original: "
            f"the home is another lane, and {audit.layout.lanes} lanes cannot catch these (CROSS-LANE). Fix the producer: a resend keeps its "
            f"key. Or set lanes = 1: one ring for the whole address would know {found.cross_lane:,} more, if it is large enough."
        )
    if found.expired:
        yield (
            f"{counted(found.expired, 'resend')} later than id_max_age = {audit.settings.id_max_age:g} s after the first of the ID: "
            "it no longer counts then, whatever the ring. These have no distance, and count as accepted in those of others."
        )
    if found.other_partition:
        yield (
            f"{counted(found.other_partition, 'resend')} reached another partition than the original: "
            "consumers of one partition each would not notice it. Ringfence brings messages of one group, "
            "or without group of one ID, together."
        )


def _transactions(audit: Audit) -> Iterator[str]:
    found = audit.transactions
    if not audit.sum("envelopes"):
        return
    if found.count:
        most = f", {found.largest:,} at most in one" if found.count > 1 else ""
        yield (
            f"{counted(found.count, 'record')} "
            f"{'is a transaction' if found.count == 1 else 'are transactions'} with "
            f"{counted(found.parts, 'part')}{most}: each is accepted or ignored as a whole. In all other "
            "numbers it is one record, with its own key and ID."
        )
    if found.part_ids:
        yield (
            f"{counted(found.part_ids, 'part')} with an ID: these take a place each in a ring, beside the IDs that are counted here, and "
            "one known is enough to ignore a transaction. So the resends of transactions are a lower bound, and id_cache_size "
            "should be larger by their share."
        )
    if found.without_id:
        yield f"{counted(found.without_id, 'transaction')} without any ID, of {found.count:,}: they would pass unchecked."
    if found.malformed:
        yield (
            f"{counted(found.malformed, 'record')} with the header _RF_TX whose value is no envelope, or has more parts than it may: "
            "Ringfence would refuse them. Fix the producer."
        )


def _partitioner(audit: Audit) -> Iterator[str]:
    shares, forwarded = audit.partitioners, audit.found.forwarded
    if audit.topic.partitions == 1:
        yield "One partition is one lane: any partitioner will do, and one worker at a time does all the work."
        return
    if audit.layout.lanes == 1:
        yield "All partitions are one lane (lanes = 1): it knows the IDs of all groups, and one worker at a time does all the work."
    if not audit.sum("keyed"):
        yield "No record has a key: which partition it reached was chance."
    elif shares is not None:
        shown = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        base = (
            f"Shares of the keyed records that each partitioner explains, by {audit.sampled_keys:,} "
            f"sampled keys: {shown}."
        )
        if shares[audit.partitioner] >= EXPLAINED_MIN:
            few = " That is a small sample." if audit.sampled_keys < _FEW_KEYS else ""
            yield f'{base} partitioner = "{audit.partitioner}".{few}'
        else:
            yield (
                f"{base} Neither explains all: more than one client is in use, or one with a partitioner of its own, or the "
                "partition count was changed. Have all producers use one of the two."
            )
    if audit.configured and audit.partitioner != audit.settings.partitioner:
        yield (
            f'The configuration says partitioner = "{audit.settings.partitioner}": a change moves homes, so resends of what was '
            "accepted before may pass once."
        )
    if forwarded:
        yield (
            f"{_share(forwarded, audit.records)} of the records are outside their home partition: Ringfence "
            "would forward them, which costs one more write each."
        )


def _groups(audit: Audit) -> Iterator[str]:
    groups = audit.groups
    if not groups.count:
        yield "No record has a group: Ringfence spreads them without order." + (
            f" The header {header} looks like one: run again with --group-header {header}, as groups decide which lane a record "
            "is in, and so how large a ring must be."
            if (header := obvious_group_header(audit))
            else ""
        )
    elif groups.count == 1:
        yield (
            f"All records that have a group are of one ({_short(groups.largest[0].name)}): one lane does all the work, and they are "
            "processed one after the other, however many partitions there are."
        )
    elif groups.share(1) >= _LARGE_SHARE:
        yield (
            f"The largest group ({_short(groups.largest[0].name)}) has {groups.share(1):.0%} of the records: it is processed one message "
            "after the other, and its lane does most of the work."
        )
    if groups.count > 1 and audit.lane_skew >= _SKEWED:
        yield f"The busiest lane gets {audit.lane_skew:.1f} times the mean."


def _contents(audit: Audit) -> Iterator[str]:
    unkeyed, tombstones = audit.records - audit.sum("keyed"), audit.sum("tombstones")
    if unkeyed and audit.sum("keyed"):
        yield f"{counted(unkeyed, 'record')} without a key."
    if tombstones:
        yield f"{counted(tombstones, 'record')} without a value (tombstones): to Ringfence these are messages like all others."
    empty = audit.topic.part.offsets - audit.records
    if empty > 0:
        yield (
            f"{counted(empty, 'offset')} without a record that may be read: markers of transactions, records of aborted ones, or what "
            "compaction took away."
        )


def _limits(audit: Audit) -> Iterator[str]:
    part, extents = audit.topic.part, audit.topic.extents.values()
    if not part.whole:
        there = sum(extent.stable - extent.start for extent in extents)
        yield (
            f"This is a sample: {part.asked}, {_share(part.offsets, there)} of what is there. The first of an ID may lie before it: "
            "resends are a lower bound, and the longest distances are missing."
        )
    elif any(extent.start for extent in extents):
        yield (
            "The log does not begin at its first record: what retention or compaction deleted cannot be seen, so resends of it "
            "count as first ones."
        )
    open_end = sum(extent.end - extent.stable for extent in extents)
    if open_end:
        yield f"{counted(open_end, 'offset')} at the end behind a transaction that is still open: not read."
    if audit.far_off:
        yield (
            f"{counted(audit.far_off, 'record')} with a timestamp more than a year before or after those of "
            "nearly all others (seconds sent as milliseconds, a clock that is wrong?): left out of all "
            "figures by time and by day."
        )
    if audit.days is None:
        minutes = SPAN_MIN_MS // 60_000
        yield f"The timestamps span less than {minutes} minutes: too little for figures by day."


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[:_NAME_MAX]}…"


def _bridges(audit: Audit) -> Iterator[str]:
    found = audit.bridges
    if found.records:
        named = list(found.bridges)
        yield (
            f"{counted(found.records, 'record')} came over {'a bridge' if len(named) == 1 else 'bridges'} "
            f"({', '.join(named[:_NAMED_MAX])}), of which {found.resends:,} had been sent before. Ringfence knows these by their hop, "
            "and needs no ring for it."
        )
    if found.ids_ignored:
        yield (
            f"Of {counted(found.ids_ignored, 'record')} that came over bridges the own ID is ignored by "
            "workers. Here it counts as any other, so the resends by ID are an upper bound."
        )
    if found.malformed:
        yield (
            f"{counted(found.malformed, 'record')} with the header _RF_BRIDGE_DUPL_ID in a form that no "
            "bridge writes: Ringfence would refuse them. No other producer may set it."
        )


def _share(part: int, of: int) -> str:
    """Return a percentage that shows 0 % only for zero, and 100 % only for all."""
    text = f"{part / of if of else 0.0:.1%}".replace("%", " %")
    if part and text == "0.0 %":
        return "under 0.1 %"
    return "over 99.9 %" if part < of and text == "100.0 %" else text
