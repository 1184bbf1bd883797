"""Bugs in what becomes of a message: ID, group, home, forwarding, what is written."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PATH: Final = "agents/path.py"
_DETOUR: Final = "agents/detour.py"
_EMITTER: Final = "agents/emitter.py"
_PATH_TESTS: Final = "tests/unit/test_path.py"
_EMITTER_TESTS: Final = "tests/unit/test_emitter.py"

MUTANTS: Final = (
    Mutant(
        "next-timestamp-for-none",
        "A record without a timestamp gets that of the next one that has one.",
        (
            Patch(
                _EMITTER,
                "partition in self._without_time and timestamp != NO_TIMESTAMP:",
                "partition in self._without_time and timestamp == 0:",
            ),
        ),
        f"{_EMITTER_TESTS}::test_timestamps",
    ),
    Mutant(
        "batch-tried-whole-for-ever",
        "A batch that fails for what is in it, or for its size, is never divided.",
        (Patch("agents/divided.py", "self.records_max = count // 2", "self.records_max = count"),),
        "tests/integration/test_lane_divided.py::test_too_much_for_its_time",
    ),
    Mutant(
        "compressed-though-larger",
        "A record batch that grows when it is compressed is sent so, and refused for its size.",
        (Patch("ringfence_kafka/compressed.py", "built if len(built) < size else plain(built)", "built"),),
        "tests/unit/test_compressed.py::test_no_larger_than_plain",
    ),
    Mutant(
        "narrow-link-tried-for-ever",
        "What does not come in time is asked for again, as much at once.",
        (
            Patch(
                "ringfence_kafka/portion.py",
                "self.bytes = max(LEAST_BYTES, self.bytes // FAILED)",
                "self.bytes = max(LEAST_BYTES, self.bytes)",
            ),
        ),
        "tests/unit/test_portion.py::test_follows_the_link",
    ),
    Mutant(
        "forwarded-again",
        "Two lanes of different opinion pass a record round for ever.",
        (
            Patch(
                _PATH,
                "homes = None if batch.topic == self._forward_topic else self._homes(leads, groups)",
                "homes = self._homes(leads, groups)",
            ),
        ),
        f"{_PATH_TESTS}::test_forwarded_is_never_forwarded_again",
    ),
    Mutant(
        "home-of-the-stored-id",
        "Without a group the home is not where a producer that keys by the ID sends it: resends do not meet.",
        (Patch(_PATH, "else home[each[1:]]", "else home[each]"),),
        f"{_PATH_TESTS}::test_home_of_the_id",
    ),
    Mutant(
        "home-keeps-the-sign",
        "Half of the keys have another home than the Java client gives them, and all their traffic is forwarded.",
        (Patch("agents/home.py", "murmur2(key) & 0x7FFFFFFF", "murmur2(key)"),),
        "tests/unit/test_home.py::test_sign_of_the_hash",
    ),
    Mutant(
        "forwarded-under-its-own-time",
        "Retention deletes a backlog from the forward topic before its home lane has read it.",
        (
            Patch(
                _EMITTER,
                "record.key, record.value, headers_on_the_way(record, source), now)",
                "record.key, record.value, headers_on_the_way(record, source))",
            ),
        ),
        f"{_EMITTER_TESTS}::test_forwarded",
        ("tests/integration/test_forward_retention.py::test_backlog_from_long_ago",),
    ),
    Mutant(
        "old-output-without-a-marker-before-it",
        "Retention deletes an accepted backlog as soon as it is written, before anybody has read it.",
        (Patch("agents/transactions.py", "        if not due:\n", "        if due or not due:\n"),),
        "tests/integration/test_output_retention.py::test_retention_within_a_transaction",
    ),
    Mutant(
        "aged-by-the-oldest",
        "A batch with one young record is taken for old, and every lane with mixed traffic writes markers without need.",
        (Patch(_EMITTER, "partition not in self._young\n", "bool(self._open)\n"),),
        f"{_EMITTER_TESTS}::test_aged",
    ),
    Mutant(
        "accepted-at-the-time-of-forwarding",
        "What was forwarded has another timestamp than what was not, and its ID ages from another moment.",
        (Patch(_DETOUR, "Arrived(record.offset, timestamp,", "Arrived(record.offset, record.timestamp,"),),
        f"{_PATH_TESTS}::test_there_and_back",
    ),
    Mutant(
        "forged-source-believed",
        "What somebody else wrote into the forward topic is accepted under a source that does not exist.",
        (Patch(_DETOUR, "re.compile(re.escape(input_topic.encode()) +", 're.compile(rb"[^/]+" +'),),
        f"{_PATH_TESTS}::test_malformed_source",
    ),
    Mutant(
        "origin-in-the-forward-topic",
        "The original of a duplicate is named where it was forwarded to, not where it arrived.",
        (
            Patch(
                _PATH,
                "        if batch.topic != self._forward_topic:\n            number",
                "        if batch.topic:\n            number",
            ),
        ),
        f"{_PATH_TESTS}::test_original_that_was_forwarded",
    ),
    Mutant(
        "refused-burns-a-slot",
        "The ID of a record that went to quarantine is known: the same message, made smaller, is dropped.",
        (
            Patch(
                _PATH,
                "        records, sources = refusing.without(gone, records, records, sources)\n        return",
                "        return",
            ),
        ),
        f"{_PATH_TESTS}::test_refused_burns_no_slot",
    ),
    Mutant(
        "empty-id-is-an-id",
        "A producer with an unset field loses all its messages but one.",
        (
            Patch(
                "agents/verdict.py",
                "        if not found:\n            add(None)\n",
                "        if found is None:\n            add(None)\n",
            ),
        ),
        "tests/unit/test_verdict.py::test_empty_value_is_no_id",
    ),
    Mutant(
        "first-repeat-wins",
        "Of a repeated ID header another one counts than for every other Kafka client.",
        (
            Patch(
                "agents/verdict.py",
                "        headers = dict(record.headers)\n        found",
                "        headers = dict(reversed(record.headers))\n        found",
            ),
        ),
        "tests/unit/test_verdict.py::test_last_repeat_wins",
    ),
    Mutant(
        "accepted-under-its-key",
        "The accepted record's key is not its group: whoever partitions by it tears the group apart.",
        (
            Patch(
                _EMITTER,
                "batches.add(spread if group is None else home[group], record, group, record.value, headers)",
                "batches.add(spread if group is None else home[group], record, record.key, record.value, headers)",
            ),
        ),
        f"{_EMITTER_TESTS}::test_key_that_is_not_the_group",
    ),
    Mutant(
        "forged-source-kept",
        "A source that a producer wrote stands before the true one.",
        (
            Patch(
                _EMITTER,
                "headers = [header for header in record.headers if header[0] not in replaced]",
                "headers = list(record.headers)",
            ),
        ),
        f"{_EMITTER_TESTS}::test_source_is_replaced",
    ),
    Mutant(
        "duplicates-accepted",
        "Duplicates are counted, and written all the same.",
        (
            Patch(
                _EMITTER,
                "            if verdict is duplicate:\n                continue\n",
                "            if verdict is None:\n                continue\n",
            ),
        ),
        f"{_EMITTER_TESTS}::test_only_duplicates_are_left_out",
    ),
    Mutant(
        "too-large-left-out",
        "A record that its output does not take is in no output, and nobody is told.",
        (Patch(_EMITTER, "        if too_large:\n            raise TooLargeError(too_large)\n", ""),),
        f"{_EMITTER_TESTS}::test_too_large",
    ),
    Mutant(
        "meta-record-missing",
        "A batch of duplicates leaves no trace in the changelog: neither its offset nor its floor.",
        (
            Patch(
                "agents/changelog.py",
                "change), (META_KEY, encode_meta(change.meta))]",
                "change), *([(META_KEY, encode_meta(change.meta))] if change.slots else [])]",
            ),
        ),
        f"{_EMITTER_TESTS}::test_changelog_without_new_ids",
    ),
)
