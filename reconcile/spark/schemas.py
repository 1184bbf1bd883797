"""Columns of all frames, by name and type."""

from typing import Final

from pyspark.sql import types

INT, LONG, TEXT = types.IntegerType(), types.LongType(), types.StringType()
BYTES, FLAG = types.BinaryType(), types.BooleanType()
ADDRESSES: Final = frozenset({"address", "part_address", "id_address", "out_address"})
"""Columns with an address: its number among those that are configured, and its name in what is kept."""


def schema(**columns: types.DataType) -> types.StructType:
    """Return a schema of these columns; each may be null."""
    return types.StructType([types.StructField(name, kind, nullable=True) for name, kind in columns.items()])


INPUTS: Final = schema(
    address=INT,  # its number among the configured addresses
    partition=INT,
    offset=LONG,
    part_number=INT,  # of a transaction's part, counted from 1; 0 = the record itself
    parts=INT,  # how many an envelope has, 0 = it cannot be read; null = it is none
    part_address=INT,  # which it is for; of a record its own
    timestamp=LONG,  # ms; of a part its envelope's
    id=BYTES,
    group=BYTES,  # of an envelope: its key, by which it finds its lane
    key_digest=LONG,
    value_digest=LONG,
    value_bytes=INT,
    headers_digest=LONG,
    hop_source=TEXT,  # of a record that came over a bridge, and of its parts: bridge/topic ID/partition; empty = it cannot be read
    hop_offset=LONG,
    hop_confirmed=LONG,  # all of that source below it had been acknowledged
    passed_digest=LONG,  # of the members that it says it has passed, where it came over a bridge; null = none
)
"""What came in."""

AUDITED: Final = schema(
    partition=INT,
    offset=LONG,
    timestamp=LONG,  # ms
    id=BYTES,
    group=BYTES,
    key=BYTES,  # null where it is the group
    keyed=FLAG,  # there is a key
    tombstone=FLAG,  # there is no value
    value_digest=LONG,
    envelope=FLAG,  # its value lists the parts of a transaction
    hop_source=TEXT,  # it came over a bridge; empty = its hop cannot be read
    hop_offset=LONG,
    ids_ignored=FLAG,
)
"""Records of an audited topic."""

ARRIVED: Final = schema(
    partition=INT,
    offset=LONG,
    timestamp=LONG,
    moment=LONG,  # the timestamp, never before one of a lower offset: by it partitions are put in one order
    lane=INT,  # its home
    has_id=FLAG,
    fresh=FLAG,  # the first of its ID in its lane
    repeats=FLAG,  # its ID is in its lane several times
    expired=FLAG,  # repeats one that is older than id_max_age: it may be accepted again
    first_partition=INT,  # the first of its ID in its lane
    first_offset=LONG,
    cross_lane=FLAG,  # the first of its ID in its lane, and there was one in another
    other_partition=FLAG,  # than the first of its ID in the topic
    other_group=FLAG,
    other_value=FLAG,
    age=LONG,  # ms since what it repeats
)
"""Records as they reach their lanes; what is about resends is null or False for all others."""

AUDITED_RESENDS: Final = schema(
    partition=INT,
    offset=LONG,
    distance=LONG,  # IDs; null where Ringfence cannot know it
    messages=LONG,
    age=LONG,
    cross_lane=FLAG,
    other_partition=FLAG,
    other_group=FLAG,
    other_value=FLAG,
)
"""Resends, and how far they are from what they repeat."""

FORWARDS: Final = schema(address=INT, partition=INT, offset=LONG, lane=INT, forward_offset=LONG)
"""Inputs that were on their way to their home lane, and where."""

OUTPUTS: Final = schema(
    address=INT,
    partition=INT,  # of the input that it names; null where it names none
    offset=LONG,
    part_number=INT,
    fate=INT,
    out_address=INT,  # in whose topic it stands
    out_parts=INT,  # of how many it says that it is one; null = it says nothing
    out_timestamp=LONG,  # ms; null where the broker has set it
    out_partition=INT,
    out_offset=LONG,
    out_group_digest=LONG,
    out_key_digest=LONG,
    out_value_digest=LONG,
    out_value_bytes=LONG,  # what a quarantine's stand-in says of the value's size
    out_headers_digest=LONG,
    out_passed_digest=LONG,  # of what is left of a bridge's headers; null = nothing
    sequence=LONG,  # of its ID in the ring of its lane, as it says; null = it says nothing
    original=TEXT,  # what a diverted or observed duplicate names as its original
    original_partition=INT,
    original_offset=LONG,
    marked=FLAG,  # it names its verdict, so its address observed when it was judged
)
"""Output records: accepted, diverted, quarantined, observed."""

EVIDENCE: Final = schema(
    address=INT,
    partition=INT,
    offset=LONG,
    part_number=INT,
    has_input=FLAG,  # False: only an output, or the forward topic, tells of it
    parts=INT,
    part_address=INT,
    timestamp=LONG,
    id=BYTES,
    group=BYTES,
    lane=INT,  # where it was judged, or is to be
    forward_offset=LONG,
    waiting=FLAG,  # its home lane had not consumed it when the run began; also of an output of such a one
    fate=INT,  # null: no output tells of it; of an envelope: what became of it as a whole
    nth=INT,  # of several outputs of one input
    out_address=INT,
    out_partition=INT,
    out_offset=LONG,
    sequence=LONG,  # that its ID got in the ring of its lane; null = no output shows it
    original=TEXT,
    original_partition=INT,
    original_offset=LONG,
    key_changed=FLAG,
    value_changed=FLAG,
    headers_changed=FLAG,
    timestamp_changed=FLAG,  # of a part: not that of its envelope
    # For parts: not at the address, not one of so many.
    address_changed=FLAG,
    parts_changed=FLAG,
    # For a record and its parts together; a plain record has its own.
    whole=INT,  # fate
    came=INT,  # parts that were accepted
    ids=INT,  # IDs: a part has none that its envelope, or a part before it, has too
    home_digest=LONG,  # of what leads it to its lane
    hop_source=TEXT,
    hop_offset=LONG,
    hop_confirmed=LONG,
    resent=FLAG,  # its lane knew its hop: a duplicate, whatever IDs it has
    after_new=FLAG,  # a lower hop of its route was accepted earlier in this run, so this one had not come before
    # Kept where the other side is missing, for the next run.
    key_digest=LONG,
    value_digest=LONG,
    value_bytes=LONG,
    headers_digest=LONG,
    passed_digest=LONG,
    group_digest=LONG,
    marked=FLAG,
)
"""Inputs beside their outputs: a row for each output, and a row for each input without one."""

IDS: Final = schema(
    address=INT,  # in whose lane it was accepted
    id_address=INT,  # whose ID it is: another one's where it is that of a part
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
    group_digest=LONG,  # null = it is an envelope's own
    home_digest=LONG,
    sequence=LONG,  # in the ring of its lane; null = nothing shows it
    value_digest=LONG,  # of its message's value; null = nobody knows
    position=LONG,  # how many IDs its lane had accepted before it, at least
    run=INT,
)
"""Accepted IDs, with where and when."""

HOPS: Final = schema(
    address=INT,
    lane=INT,
    hop_source=TEXT,
    partition=INT,  # where it came in: with the three above its route
    offset=LONG,
    forward_offset=LONG,
    hop_offset=LONG,  # null: this row only tells what was confirmed
    hop_confirmed=LONG,  # of all rows of a route the largest counts
    accepted=FLAG,
    lost=FLAG,  # all that came of it
)
"""Hops that lanes know: the confirmed one of each route, and those above it."""

FOLLOWED: Final = schema(
    **{item.name: item.dataType for item in EVIDENCE},
    kept=FLAG,  # a run before has judged it
    accepted=FLAG,
    lost=FLAG,  # nothing came of it, so its lane need not know its hop
    capacity=LONG,  # of the lane's ring then; null = nothing tells
    ring=INT,  # of the lane that judged it; ``lane`` has its hop now
    hop_epoch=INT,  # how often its lane had forgotten all hops before it
    kept_epoch=INT,  # how often it may have
    sure_epoch=INT,  # how often it may have forgotten some
    highest=LONG,  # the highest hop of its route before it
    confirmed_route=LONG,  # the largest confirmed hop of its route, before it or later
    # The first of the same hop, and the largest confirmed hop, of its route before it. Since its lane last forgot hops; since
    # it may have; since it may have forgotten some; ever.
    same_known=LONG,
    confirmed_known=LONG,
    same_kept=LONG,
    confirmed_kept=LONG,
    same_sure=LONG,
    confirmed_sure=LONG,
    same_ever=LONG,
    confirmed_ever=LONG,
)
"""Evidence on records that came over bridges, and their parts, beside what their lanes knew."""

RESENDS: Final = schema(
    address=INT,
    lane=INT,
    distance=LONG,  # in IDs
    age=LONG,  # seconds, the next power of two
    count=LONG,
    conflicts=LONG,  # of these, those with another value than what they repeat; null = nobody looked
)
"""Resends of a run: how far from what they repeat."""

NUMBERS: Final = schema(address=INT, of=TEXT, at=LONG, a=LONG, b=LONG, c=LONG, d=LONG, name=BYTES)
"""Small results of different kinds, so that one job brings them all."""

EVENTS: Final = schema(
    address=INT,
    lane=INT,
    number=LONG,  # offset in the journal
    input_next=LONG,
    forward_next=LONG,
    before=LONG,  # the ring's capacity
    after=LONG,
    event=TEXT,
    of_hops=FLAG,  # not to the ring, but to what the lane knew of hops
    nexts=types.ArrayType(LONG),  # by input partition, instead of input_next; null = the lane has one
    lanes=INT,  # the key of its address then; null or 0 = a lane for each partition
)
"""Events of rings: a lane had judged all its inputs below the two offsets before the event."""

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
    out_address=INT,  # where it is not that of the input
    out_topic=TEXT,  # where it is not the one of that fate
    out_partition=INT,
    out_offset=LONG,
    other_partition=INT,  # the other input that it is about
    other_offset=LONG,
    id=BYTES,
    group=BYTES,
    detail=TEXT,
    suspected=TEXT,  # of a GAP: the anomaly that it may be
    timestamp=LONG,  # of its input, else of its output, ms; null where no evidence shows it
)
"""One anomaly a row."""

SPANS: Final = schema(address=INT, partition=INT, origin=LONG, begin=LONG, read_from=LONG, cut=LONG, end=LONG)
"""Offset ranges of the cut for each input partition."""

ACCEPTED_SPANS: Final = schema(out_address=INT, out_partition=INT, out_begin=LONG)
"""End of the last run in each partition of an accepted topic."""

FORWARD_COMMITTED: Final = schema(address=INT, lane=INT, committed=LONG)
"""Up to where the home lanes have consumed their forward topic."""

RULES: Final = schema(
    address=INT,
    max_age_ms=LONG,
    min_age_ms=LONG,  # 0 = no promise in time
    size=LONG,  # IDs that count whatever their age, with such a promise
    largest=LONG,  # the largest ring that it can have had
    divert=FLAG,
    observes=FLAG,  # all its messages passed, duplicates too
    enforces=FLAG,  # its duplicates are not to pass, and did not when the last run began
    diverts_conflicts=FLAG,  # a duplicate with another value is in the duplicates topic, or is lost
    detects=FLAG,  # its rings are on, or were at a time that the evidence may tell of
    outputs_gone=FLAG,
    targets_gone=FLAG,  # accepted topics of other addresses, which its parts may be in
    ids_gone=FLAG,
    lanes_whole=types.ArrayType(INT, containsNull=False),  # those of which all IDs are known nevertheless
    whole_since=INT,  # the first run from which on no accepted ID is missing
    moved=INT,  # the last run that may have judged by another partitioner
    renamed=INT,  # the last run that may have judged it by another name, with other rings
)
"""Promises of an address, and whether the evidence is whole."""

COUNTS: Final = schema(address=TEXT, name=TEXT, count=LONG)  # what was counted, as it is kept

GAPS: Final = schema(
    address=INT, partition=INT, offset=LONG, out_topic=TEXT, out_partition=INT, out_offset=LONG, text=TEXT
)
"""Stretches of partitions that are gone: of the input, or of another topic."""

FORWARDED: Final = 0
ACCEPTED: Final = 1
DIVERTED: Final = 2
QUARANTINED: Final = 3
OBSERVED: Final = 4  # fates, in the order in which they count when an input has several
PASSED: Final = (ACCEPTED, OBSERVED)  # fates of records in an accepted topic
REPEATS: Final = (DIVERTED, OBSERVED)  # fates of records that are said to be duplicates
