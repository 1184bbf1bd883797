"""Schemas of all frames: names and types of their columns."""

from typing import Final

from pyspark.sql import types

INT, LONG, TEXT = types.IntegerType(), types.LongType(), types.StringType()
BYTES, FLAG = types.BinaryType(), types.BooleanType()
ADDRESSES: Final = frozenset({"address", "part_address", "id_address", "out_address"})
"""Columns with an address: its number among the configured addresses in frames, its name in files."""


def schema(**columns: types.DataType) -> types.StructType:
    """Return a schema of these nullable columns."""
    return types.StructType([types.StructField(name, kind, nullable=True) for name, kind in columns.items()])


INPUTS: Final = schema(
    address=INT,  # number among the configured addresses
    partition=INT,
    offset=LONG,
    part_number=INT,  # part of a transaction, from 1; 0 = the record itself
    parts=INT,  # number of parts in an envelope, 0 = unreadable; null = not an envelope
    part_address=INT,  # target of a part; own address of a record
    timestamp=LONG,  # ms; a part has its envelope's
    id=BYTES,
    group=BYTES,  # an envelope has its key, which determines its lane
    key_digest=LONG,
    value_digest=LONG,
    value_bytes=INT,
    headers_digest=LONG,
    hop_source=TEXT,  # bridge/topic ID/partition, also for parts; null = no bridge; empty = unreadable
    hop_offset=LONG,
    hop_confirmed=LONG,  # the bridge confirmed all hops of the source below it
    passed_digest=LONG,  # digest of the members that a bridged record says it has passed; null = none
)
"""Input records and parts."""

ARRIVED: Final = schema(
    partition=INT,
    offset=LONG,
    timestamp=LONG,
    moment=LONG,  # timestamp, but never below that of a lower offset; it orders partitions
    lane=INT,  # home lane
    has_id=FLAG,
    fresh=FLAG,  # first of its ID in its lane
    repeats=FLAG,  # its lane has the ID several times
    expired=FLAG,  # repeats an ID older than id_max_age, so it may be accepted again
    first_partition=INT,  # place of the first record with the ID in its lane
    first_offset=LONG,
    cross_lane=FLAG,  # first of its ID in its lane, after one in another lane
    other_partition=FLAG,  # differs from the topic's first record with the ID, like the next two
    other_group=FLAG,
    other_value=FLAG,
    age=LONG,  # ms since the original
)
"""Records as they reach their lanes. Columns about resends are null or False for other records."""

AUDITED_RESENDS: Final = schema(
    distance=LONG,  # IDs; null if Ringfence cannot know the original
    messages=LONG,
    age=LONG,
)
"""Resends, and their distance from the original."""

FORWARDS: Final = schema(address=INT, partition=INT, offset=LONG, lane=INT, forward_offset=LONG)
"""Inputs forwarded to their home lane, with their place in the forward topic."""

OUTPUTS: Final = schema(
    address=INT,
    partition=INT,  # place of the named input; null = none
    offset=LONG,
    part_number=INT,
    fate=INT,
    out_address=INT,  # address of the output's topic
    out_parts=INT,  # number of parts that a part says its transaction has; null = not a part
    out_timestamp=LONG,  # ms; null if the broker set it
    out_partition=INT,
    out_offset=LONG,
    out_group_digest=LONG,
    out_key_digest=LONG,
    out_value_digest=LONG,
    out_value_bytes=LONG,  # size of the value, from quarantine's replacement
    out_headers_digest=LONG,
    out_passed_digest=LONG,  # digest of remaining bridge headers; null = none
    sequence=LONG,  # sequence number of its ID in the ring; null = not in the record
    original=TEXT,  # place of the original, named by a diverted or observed duplicate
    original_partition=INT,
    original_offset=LONG,
    marked=FLAG,  # names its verdict: the address was in observe mode
)
"""Output records: accepted, diverted, quarantined or observed."""

EVIDENCE: Final = schema(
    address=INT,
    partition=INT,
    offset=LONG,
    part_number=INT,
    has_input=FLAG,  # False: only an output or the forward topic shows the record
    parts=INT,
    part_address=INT,
    timestamp=LONG,
    id=BYTES,
    group=BYTES,
    lane=INT,  # lane that judged it, or will
    forward_offset=LONG,
    waiting=FLAG,  # the home lane had not consumed it when the run began; also for its outputs
    fate=INT,  # null = no output; an envelope has the fate of the whole unit
    nth=INT,  # rank of the output among those of its input
    out_address=INT,
    out_partition=INT,
    out_offset=LONG,
    sequence=LONG,  # sequence number of the ID in its ring; null = no output shows it
    original=TEXT,
    original_partition=INT,
    original_offset=LONG,
    key_changed=FLAG,
    value_changed=FLAG,
    headers_changed=FLAG,
    timestamp_changed=FLAG,  # a part is compared with its envelope
    # Parts only: wrong address, or wrong number of parts.
    address_changed=FLAG,
    parts_changed=FLAG,
    # Of the unit of a record and its parts; a plain record is its own unit.
    whole=INT,  # fate of the unit
    came=INT,  # number of accepted parts
    ids=INT,  # number of IDs; repeated IDs in a unit count once
    home_digest=LONG,  # digest of the bytes that determine its lane
    hop_source=TEXT,
    hop_offset=LONG,
    hop_confirmed=LONG,
    resent=FLAG,  # the lane knew its hop, so it is a duplicate with any ID
    after_new=FLAG,  # this run accepted a lower hop of the route earlier, so this hop had not come before
    # Kept for the next run if input or output is missing.
    key_digest=LONG,
    value_digest=LONG,
    value_bytes=LONG,
    headers_digest=LONG,
    passed_digest=LONG,
    group_digest=LONG,
    marked=FLAG,
)
"""Inputs with their outputs: a row for each output, and a row for each input without one."""

IDS: Final = schema(
    address=INT,  # address of the lane that accepted it
    id_address=INT,  # address that the ID belongs to; another one for some parts
    id=BYTES,
    lane=INT,
    partition=INT,
    offset=LONG,
    part_number=INT,
    forward_offset=LONG,
    timestamp=LONG,
    out_address=INT,
    out_partition=INT,
    out_offset=LONG,
    group_digest=LONG,  # null = own ID of an envelope
    home_digest=LONG,
    sequence=LONG,  # sequence number in its ring; null = not known
    value_digest=LONG,  # digest of the message's value; null = not known
    position=LONG,  # lower bound of the IDs that its lane accepted before
    run=INT,
)
"""Accepted IDs, with their places and times."""

HOPS: Final = schema(
    address=INT,
    lane=INT,
    hop_source=TEXT,
    partition=INT,  # input partition; completes the route
    offset=LONG,
    forward_offset=LONG,
    hop_offset=LONG,  # null: the row only has the confirmed hop
    hop_confirmed=LONG,  # the highest of a route counts
    accepted=FLAG,
    lost=FLAG,  # all records of the hop were lost
)
"""Hops that lanes know: the confirmed hop of each route, and hops above it."""

FOLLOWED: Final = schema(
    **{item.name: item.dataType for item in EVIDENCE},
    kept=FLAG,  # judged by an earlier run
    accepted=FLAG,
    lost=FLAG,  # it was lost, so its lane may not know its hop
    capacity=LONG,  # ring size then; null = not known
    ring=INT,  # ring that judged it; ``lane`` is the ring that has its hop now
    hop_epoch=INT,  # how often its lane certainly forgot all hops before it
    kept_epoch=INT,  # how often its lane may have forgotten all hops
    sure_epoch=INT,  # how often its lane may have forgotten some hops
    highest=LONG,  # highest earlier hop of its route
    confirmed_route=LONG,  # highest confirmed hop of its route, at any time
    # First record with the same hop, and highest confirmed hop, earlier on the route. ``known``: since the
    # lane certainly forgot hops; ``kept``: since it may have forgotten all; ``sure``: since it may have
    # forgotten some; ``ever``: at any time.
    same_known=LONG,
    confirmed_known=LONG,
    same_kept=LONG,
    confirmed_kept=LONG,
    same_sure=LONG,
    confirmed_sure=LONG,
    same_ever=LONG,
    confirmed_ever=LONG,
)
"""Evidence on bridged records and their parts, with the hops that their lanes knew."""

RESENDS: Final = schema(
    address=INT,
    lane=INT,
    distance=LONG,  # in IDs
    age=LONG,  # seconds, rounded up to a power of two
    count=LONG,
    conflicts=LONG,  # resends whose value differs from the original's; null = not counted
)
"""Resends of a run by their distance from the original."""

NUMBERS: Final = schema(address=INT, of=TEXT, at=LONG, a=LONG, b=LONG, c=LONG, d=LONG, name=BYTES)
"""Small results of different kinds, so that one job collects them all."""

EVENTS: Final = schema(
    address=INT,
    lane=INT,
    number=LONG,  # offset in the journal
    input_next=LONG,
    forward_next=LONG,
    before=LONG,  # capacity of the ring before; ``after``: capacity after it
    after=LONG,
    event=TEXT,
    of_hops=FLAG,  # event of the lane's hop memory, not of its ring
    nexts=types.ArrayType(LONG),  # replaces input_next for each input partition; null = the lane has one
    lanes=INT,  # key ``lanes`` of the address then; null or 0 = one lane for each partition
)
"""Events of rings. The lane judged all inputs below the given offsets before the event."""

EMPTIED: Final = schema(
    address=INT, lane=INT, input_next=LONG, forward_next=LONG, nexts=types.ArrayType(LONG)
)
"""Input offsets of a lane when its ring was last emptied by order."""

ANOMALIES: Final = schema(
    anomaly=TEXT,
    address=INT,
    partition=INT,
    offset=LONG,
    part_number=INT,
    fate=INT,
    out_address=INT,  # null = the input's address
    out_topic=TEXT,  # null = the address's topic for this fate
    out_partition=INT,
    out_offset=LONG,
    other_partition=INT,  # place of another input that the anomaly concerns
    other_offset=LONG,
    id=BYTES,
    group=BYTES,
    detail=TEXT,
    suspected=TEXT,  # for GAP: the anomaly that it may be
    timestamp=LONG,  # of the input, else of the output, ms; null = not known
)
"""Anomalies, one in each row."""

SPANS: Final = schema(address=INT, partition=INT, origin=LONG, begin=LONG, read_from=LONG, cut=LONG, end=LONG)
"""Offset ranges of the cut for each input partition."""

ACCEPTED_SPANS: Final = schema(out_address=INT, out_partition=INT, out_begin=LONG)
"""End of the last run in each partition of an accepted topic."""

FORWARD_COMMITTED: Final = schema(address=INT, lane=INT, committed=LONG)
"""Offset up to which each home lane has consumed its forward topic."""

RULES: Final = schema(
    address=INT,
    max_age_ms=LONG,
    min_age_ms=LONG,  # 0 = no promise in time
    size=LONG,  # IDs kept at any age under a promise in time
    largest=LONG,  # largest ring size that it may have had
    divert=FLAG,
    observes=FLAG,  # all messages pass, including duplicates
    enforces=FLAG,  # duplicates must not pass, now and when the last run began
    diverts_conflicts=FLAG,  # duplicates with another value must be in the duplicates topic
    detects=FLAG,  # rings are on, or were during the time of the evidence
    outputs_gone=FLAG,
    targets_gone=FLAG,  # evidence in other addresses' accepted topics, which may have its parts, is deleted
    evidence_deleted=FLAG,
    lanes_whole=types.ArrayType(INT, containsNull=False),  # lanes whose IDs are all known nevertheless
    whole_since=INT,  # first run since which no accepted ID is missing
    moved=INT,  # last run that may have judged by another partitioner
    renamed=INT,  # last run that may have judged it under another name, with other rings
)
"""Promises of an address, and whether evidence is complete."""

COUNTS: Final = schema(address=TEXT, name=TEXT, count=LONG)  # counts as they are kept in files

GAPS: Final = schema(
    address=INT, partition=INT, offset=LONG, out_topic=TEXT, out_partition=INT, out_offset=LONG, text=TEXT
)
"""Missing ranges of partitions, of the input or of another topic."""

FORWARDED: Final = 0
ACCEPTED: Final = 1
DIVERTED: Final = 2
QUARANTINED: Final = 3
OBSERVED: Final = 4  # fates, in the order in which they count if an input has several
PASSED: Final = (ACCEPTED, OBSERVED)  # fates of records in an accepted topic
REPEATS: Final = (DIVERTED, OBSERVED)  # fates of records marked as duplicates
