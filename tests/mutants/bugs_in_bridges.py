"""Bugs in bridges: what is confirmed, what is sent again, what is forwarded to whom."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_WINDOW: Final = "agents/bridge/window.py"
_LOAD: Final = "agents/bridge/load.py"
_LIFE: Final = "agents/bridge/life.py"
_LIVES: Final = "agents/bridge/lives.py"
_FLOW: Final = "agents/bridge/flow.py"
_BRIDGE: Final = "agents/bridge/bridge.py"
_PARTITIONS: Final = "agents/bridge/partitions.py"
_TRANSLATION: Final = "agents/bridge/translation.py"
_RETURNING: Final = "agents/bridge/returning.py"
_RETURNING_TESTS: Final = "tests/unit/test_bridge_returning.py"
_SHARING: Final = "agents/bridge/sharing.py"
_MAPS: Final = "agents/bridge/maps.py"
_BEGIN: Final = "agents/bridge/begin.py"
_BEGIN_TESTS: Final = "tests/unit/test_bridge_begin.py"
_COMMITTING: Final = "agents/bridge/committing.py"
_COMMITTING_TESTS: Final = "tests/unit/test_bridge_committing.py"
_WINDOW_TESTS: Final = "tests/unit/test_bridge_window.py"
_LOAD_TESTS: Final = "tests/unit/test_bridge_load.py"
_TRANSLATION_TESTS: Final = "tests/unit/test_bridge_translation.py"
_MAPS_TESTS: Final = "tests/unit/test_bridge_maps.py"
_BRIDGE_TESTS: Final = "tests/integration/test_bridge.py"
_TROUBLES: Final = "tests/integration/test_bridge_troubles.py"
_SOURCES: Final = "tests/integration/test_bridge_sources.py"
_MODEL_TESTS: Final = "tests/property/test_bridge_model.py"
_MODEL: Final = f"{_MODEL_TESTS}::test_once_and_in_order"

MUTANTS: Final = (
    Mutant(
        "refused-times-are-not-learned",
        "Each record of a producer that mistakes microseconds for milliseconds costs a bridge a search.",
        (
            Patch(
                "agents/bridge/load.py",
                "if reason is None and not oldest < each.timestamp < farthest:",
                "if reason is None and oldest > farthest:",
            ),
        ),
        "tests/unit/test_bridge_load.py::test_refused_for_their_time",
    ),
    Mutant(
        "bridge-window-beyond-the-target",
        "A small address forgets what a bridge has under way, and takes it twice when its successor sends it again.",
        (
            Patch(
                "ringfence_kafka/config/bridges.py",
                "min(WINDOW, id_cache_size or WINDOW)",
                "WINDOW",
            ),
        ),
        "tests/unit/test_bridge_settings.py::test_window_follows_the_target",
        ("tests/unit/test_bridge_settings.py::test_window_under_way_is_told_apart",),
    ),
    Mutant(
        "bridge-commits-before-ack",
        "A process that dies then has committed over messages that never arrived.",
        (Patch(_WINDOW, "while self._cycles and not self._cycles[0].pending:", "while self._cycles:"),),
        f"{_WINDOW_TESTS}::test_confirmed_by_acknowledgement_alone",
        (f"{_WINDOW_TESTS}::test_confirmed_in_order",),
    ),
    Mutant(
        "bridge-confirms-what-is-fetched",
        "What is sent counts as confirmed: the target believes none of it, and where it did it would drop what is sent again.",
        (Patch(_LOAD, 'b"%d" % place.confirmed', 'b"%d" % place.next'),),
        f"{_LOAD_TESTS}::test_hop_and_confirmed",
    ),
    Mutant(
        "bridge-confirms-what-is-sent",
        "What went to quarantine or to another partition, and never arrived, is dropped where it comes at last: a silent loss.",
        (
            Patch(
                _LOAD,
                "headers = [*each.headers, (wire.HEADER_HOP, hop), *ours] if detection",
                'headers = [*each.headers, (wire.HEADER_HOP, hop), (ours[0][0], b"%d" % each.offset), *ours[1:]] if detection',
            ),
        ),
        f"{_MODEL_TESTS}::test_taken_after_all",
        (f"{_MODEL_TESTS}::test_partitioner_changed",),
    ),
    Mutant(
        "bridge-quarantined-not-confirmed",
        "What is in quarantine is sent there again at each start, and a source that ends with it keeps its lag.",
        (
            Patch(
                _FLOW,
                "            quarantined = load.quarantined.get(place.partition, 0)\n",
                "            quarantined = load.quarantined.get(place.partition, 0)\n"
                "            if quarantined:\n"
                "                of_it = [each for each in load.batches if each.topic == self._plan.quarantine_topic]\n"
                "                firsts = [each.first[1] for each in of_it if each.first[0] is place]\n"
                "                place.confirmed = min(firsts, default=place.confirmed)\n",
            ),
        ),
        _MODEL,
        (f"{_BRIDGE_TESTS}::test_too_large",),
    ),
    Mutant(
        "bridge-names-the-topic",
        "A source that was deleted and created again has hops that the target knows: its new messages are dropped.",
        (
            Patch(
                _LOAD,
                "Source(self._plan.name, place.topic_id, number)",
                'Source(self._plan.name, self._plan.source_topic.ljust(22, "_"), number)',
            ),
        ),
        f"{_LOAD_TESTS}::test_hop_and_confirmed",
    ),
    Mutant(
        "bridge-next-batch-before-ack",
        "A batch is lost, the next one arrives: groups lose their order.",
        (
            Patch(
                _LIFE,
                "            place = (each.topic, each.partition)\n",
                "            place = (each.topic, each.partition, id(each))\n",
            ),
        ),
        _MODEL,
    ),
    Mutant(
        "bridge-goes-on-after-failure",
        "What was read and not acknowledged is stepped over.",
        (Patch(_WINDOW, "            place.next = place.confirmed\n", "            pass\n"),),
        f"{_WINDOW_TESTS}::test_failure",
        (_MODEL,),
    ),
    Mutant(
        "bridge-keeps-its-producer",
        "After a refused batch aiokafka's sequence numbers have a gap, and nothing is taken any more.",
        (
            Patch(
                _LIVES,
                "producer = IdempotentProducer(self._plan.target, self._instance, bytes_max)",
                'producer = self.__dict__.setdefault("kept", IdempotentProducer(self._plan.target, self._instance, bytes_max))',
            ),
        ),
        f"{_BRIDGE_TESTS}::test_refused_by_the_broker",
    ),
    Mutant(
        "bridge-gives-away-without-drain",
        "What was under way is sent again by the next owner: nothing passes twice, and work is done twice.",
        (
            Patch(
                _BRIDGE,
                "                await self._flow.drain(life)\n                if self.window.busy:\n",
                "                if self.window.busy:\n",
            ),
        ),
        f"{_TROUBLES}::test_partitions_change_hands",
    ),
    Mutant(
        "bridge-filter-holds-confirmed-back",
        "Where nothing is to be forwarded nothing is confirmed, and the window fills up.",
        (
            Patch(
                _WINDOW,
                "                place.confirmed = max(place.confirmed, end)\n",
                "                place.confirmed = max(place.confirmed, end) if cycle.records.get(place) else place.confirmed\n",
            ),
        ),
        _MODEL,
    ),
    Mutant(
        "bridge-window-ignored",
        "More is under way than the target remembers.",
        (
            Patch(
                _WINDOW,
                "(place.next - place.confirmed) >= self.take",
                "(place.next - place.confirmed) >= -self.take",
            ),
        ),
        f"{_WINDOW_TESTS}::test_no_more_than_the_limit",
        (f"{_WINDOW_TESTS}::test_smallest_window",),
    ),
    Mutant(
        "bridge-refused-not-learned",
        "One message that the target does not take holds up its partition for ever.",
        (
            Patch(
                _FLOW, "            self.refused.by_target[batch.first] = str(error)\n", "            pass\n"
            ),
        ),
        _MODEL,
    ),
    Mutant(
        "bridge-steps-over-what-nothing-takes",
        "Without a quarantine topic a message that the target does not take is lost in silence.",
        (Patch(_FLOW, "                self.window.cut(cycle, place, error.offset)\n", ""),),
        "tests/unit/test_bridge_flow.py::test_what_nothing_takes_stops_its_partition_alone",
    ),
    Mutant(
        "bridge-forgets-which-is-refused",
        "Two partitions with such a message each make the other's be looked for again, for ever.",
        (
            Patch(
                _FLOW,
                "if done and (self.refused.by_target or self._until):",
                "if self.refused.by_target or self._until:",
            ),
            Patch(
                _FLOW,
                "            if all(\n                each.confirmed >= end or",
                "            if True or all(\n                each.confirmed >= end or",
            ),
        ),
        _MODEL,
    ),
    Mutant(
        "bridge-believes-clients-hops",
        "A client keeps its message from members by a header.",
        (
            Patch(
                _TRANSLATION,
                "passed = ours.get(wire.HEADER_HOPS) if accepted or wire.HEADER_HOP in ours else None",
                "passed = ours.get(wire.HEADER_HOPS)",
            ),
        ),
        f"{_TRANSLATION_TESTS}::test_hops_of_a_client",
        (f"{_TRANSLATION_TESTS}::test_a_forged_hop_keeps_nothing_back",),
    ),
    Mutant(
        "bridge-echo",
        "What came from a member goes back to it.",
        (Patch(_TRANSLATION, "if self._member in members or len(members)", "if len(members)"),),
        f"{_TRANSLATION_TESTS}::test_no_echo",
    ),
    Mutant(
        "bridge-brings-back",
        "A message comes back once to where it was, before it is seen.",
        (Patch(_RETURNING, "if turns or not self._target_topics.isdisjoint(found):", "if turns:"),),
        f"{_RETURNING_TESTS}::test_not_back",
    ),
    Mutant(
        "bridge-goes-in-circles",
        "What comes back goes on for ever where IDs do not count.",
        (Patch(_RETURNING, "if not self._forwards or turns >= TURNS_MAX:", "if not self._forwards:"),),
        f"{_RETURNING_TESTS}::test_ids_that_do_not_count",
    ),
    Mutant(
        "bridge-forgets-where-it-was",
        "Of what has passed one bridge the next says only that it read it.",
        (Patch(_LOAD, "if first is not None and type(each) is not Traced:", "if first is not None:"),),
        f"{_RETURNING_TESTS}::test_not_back",
    ),
    Mutant(
        "bridge-brings-what-others-bring",
        "Members that know one another get a message by each way.",
        (Patch(_TRANSLATION, "if reached(self._member) in found:", "if not found:"),),
        f"{_RETURNING_TESTS}::test_members_that_know_one_another",
    ),
    Mutant(
        "bridge-owner-by-index",
        "A member that comes moves nearly all groups.",
        (
            Patch(
                _SHARING,
                "    return max(members, key=lambda member: (_weight(member.encode(), group), member))\n",
                '    there = sorted(members)\n    return there[int.from_bytes(_weight(b"", group), "big") % len(there)]\n',
            ),
        ),
        f"{_MAPS_TESTS}::test_a_member_moves_its_share_alone",
    ),
    Mutant(
        "bridge-strict-to-all",
        "Each member gets every message.",
        (
            Patch(
                _LOAD,
                'if owner[f"{where}{each.offset}".encode() if each.key is None else each.key] == member',
                "if member",
            ),
        ),
        f"{_LOAD_TESTS}::test_share",
    ),
    Mutant(
        "bridge-map-changed-apart",
        "Messages between where two members' bridges stand go to nobody or to two.",
        (Patch(_MAPS, "if others or first is None or not all(", "if first is None or not all("),),
        f"{_MAPS_TESTS}::test_changed_apart",
        (f"{_MAPS_TESTS}::test_removed_member_counts",),
    ),
    Mutant(
        "bridge-lost-offset-taken-for-a-change",
        "The group of one member has lost its offsets: its backlog is skipped.",
        (Patch(_MAPS, "if not all(each.still == NOT_BEGUN", "if not all(each.still is not None"),),
        f"{_MAPS_TESTS}::test_lost_offset_is_no_change_cut_short",
    ),
    Mutant(
        "bridge-map-changed-after-a-crash",
        "What a bridge has sent and not committed is sent again, to other members.",
        (Patch(_MAPS, "all(each.still or each.map is None for", "all(each.still is not None for"),),
        f"{_MAPS_TESTS}::test_died_at_one_offset",
    ),
    Mutant(
        "bridge-forgets-a-lost-end",
        "A source that lost its end and has grown is forwarded, with offsets that the target knows: it drops what is new.",
        (Patch(_BEGIN, "if note.lost_end or reached", "if reached"),),
        f"{_BEGIN_TESTS}::test_stands_until_somebody_acts",
    ),
    Mutant(
        "bridge-judges-a-lost-end-by-its-commit",
        "What was sent and not committed has offsets that the target knows: it drops what is new there.",
        (Patch(_BEGIN, "0 if before is None else before.reached)", "0)"),),
        f"{_BEGIN_TESTS}::test_lost_end_under_it",
    ),
    Mutant(
        "bridge-reads-before-its-beginning-is-committed",
        "Killed then, a bridge that begins at the latest begins later the next time: what came meanwhile is skipped.",
        (Patch(_LIVES, "if self._committer.stands(number) is not None", "if number is not None"),),
        f"{_COMMITTING_TESTS}::test_nothing_is_read_before_the_beginning_is_committed",
    ),
    Mutant(
        "bridge-hides-what-stops-a-partition",
        "A partition goes no further, and status shows nothing.",
        (Patch(_COMMITTING, "self._state.stops.get(number) or self._state.fault", "self._state.fault"),),
        f"{_COMMITTING_TESTS}::test_note_says_what_stops_the_partition",
    ),
    Mutant(
        "bridge-at-rest-with-more-sent",
        "A predecessor died with messages under way, which go to other members once more.",
        (Patch(_COMMITTING, "AT_REST if last and not sent", "AT_REST if last"),),
        f"{_COMMITTING_TESTS}::test_at_rest",
    ),
    Mutant(
        "bridge-recreated-at-latest",
        "What came into a source that was created again beneath the bridge is never forwarded.",
        (Patch(_PARTITIONS, "if present != self._state.first_topic_id:", "if not present:"),),
        f"{_SOURCES}::test_source_recreated_under_it",
    ),
)
