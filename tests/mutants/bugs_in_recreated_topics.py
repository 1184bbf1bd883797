"""Bugs in what becomes of a topic that is deleted and created again, or grows, beneath those who consume."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_TESTS: Final = "tests/integration/test_group_recreated.py"
_RULES: Final = "tests/unit/test_resuming.py"
_ASKING: Final = "tests/unit/test_identities.py"

MUTANTS: Final = (
    Mutant(
        "another-topic-of-the-name",
        "An accepted topic is created again, and the first messages of the new one count as finished.",
        (
            Patch(
                "ringfence_client/resuming.py",
                "recreated = bool(recorded.topic_id) and recorded.topic_id != log.topic_id",
                "recreated = recorded.topic_id is None",
            ),
        ),
        f"{_RULES}::test_another_topic",
        (f"{_TESTS}::test_between_two_runs",),
    ),
    Mutant(
        "offset-set-in-a-new-topic",
        "An operator sets where to begin in a topic that was created again, and it begins at its start.",
        (
            Patch(
                "ringfence_client/resuming.py",
                "if log.committed is not None and moved:",
                "if log.committed is not None and moved and not recreated:",
            ),
        ),
        f"{_RULES}::test_offset_set_in_another_topic",
    ),
    Mutant(
        "topic-not-watched",
        "A topic is created again beneath a consumer, which goes on at the old position.",
        (
            Patch(
                "ringfence_client/held_partitions.py",
                "if each.lease.topic_id != identity.topic_id]",
                "if not each.lease.topic_id]",
            ),
        ),
        f"{_TESTS}::test_beneath_a_consumer[300]",
    ),
    Mutant(
        "parked-messages-of-another-log",
        "What is parked is read from a topic of the same name, and handed out as messages of other groups.",
        (
            Patch(
                "ringfence_client/window.py",
                "if any(found is not None and found != (each.key, each.timestamp) for each, found in known):",
                "if any(found == () for each, found in known):",
            ),
        ),
        "tests/unit/test_window.py::test_parked_messages_of_another_log",
    ),
    Mutant(
        "left-runs-by-name-alone",
        "A thread of a topic that is gone ends, and a message of the new one that nobody has handled counts as finished.",
        (
            Patch(
                "ringfence_client/held_partition.py",
                "(lease.topic, lease.partition, lease.topic_id)",
                '(lease.topic, lease.partition, "")',
            ),
        ),
        f"{_TESTS}::test_thread_that_cannot_be_ended",
    ),
    Mutant(
        "token-anew-in-a-grown-topic",
        "The progress topic gets more partitions: tokens begin at 1 again, and a store refuses whatever comes.",
        (
            Patch(
                "ringfence_client/progress.py",
                "            if there.value is not None:\n                log",
                "            if there.value == b'':\n                log",
            ),
        ),
        f"{_TESTS}::test_progress_topic_that_grew",
    ),
    Mutant(
        "lease-not-written-again",
        "The progress topic is created again beneath a consumer: its partition is anybody's, under a token that was there before.",
        (Patch("ringfence_client/consumer.py", "                self.held_partitions.write_again()\n", ""),),
        f"{_TESTS}::test_progress_topic[8]",
    ),
    Mutant(
        "created-by-asking",
        "Whoever deletes a topic beneath a consumer finds it created again, with other settings, before they can do that themselves.",
        (
            Patch(
                "ringfence_kafka/insides.py",
                "partial(MetadataRequest, allow_auto_topic_creation=False)",
                "partial(MetadataRequest, allow_auto_topic_creation=True)",
            ),
        ),
        f"{_TESTS}::test_cluster_that_creates_topics_by_itself",
    ),
    Mutant(
        "stale-metadata",
        "A topic grows, and nothing can be written to its new partitions for minutes.",
        (
            Patch(
                "ringfence_kafka/transaction/explicit.py",
                "                    await require_partition(self._producer, topic, partition, wait=True)\n",
                "",
            ),
            Patch(
                "ringfence_kafka/transaction/implicit.py",
                "        await require_partition(self._producer, batch.topic, batch.partition, wait=True)\n",
                "",
            ),
        ),
        "tests/integration/test_shared_clients.py::test_topic_that_grew",
    ),
    Mutant(
        "only-one-broker-is-asked",
        "While one broker is away, nobody tells a consumer every third time which topics it reads.",
        (
            Patch(
                "ringfence_kafka/identities.py",
                "                error = refused\n",
                "                error = refused\n                break\n",
            ),
        ),
        f"{_ASKING}::test_nobody_answers",
    ),
    Mutant(
        "another-broker-each-time",
        "A broker that hears of a new topic a moment later tells of the one before it, and leases are taken anew, twice.",
        (
            Patch(
                "ringfence_kafka/identities.py",
                "(node in self._silent) - (node == self._believed)",
                "(node in self._silent)",
            ),
        ),
        f"{_ASKING}::test_who_is_asked",
    ),
    Mutant(
        "the-first-broker-is-believed",
        "A consumer that has just made its topics ends, because the broker that it asks next has not heard of them.",
        (
            Patch(
                "ringfence_kafka/identities.py",
                "            return known == _NONE\n",
                "            return False\n",
            ),
        ),
        f"{_ASKING}::test_a_topic_that_was_just_made",
    ),
    Mutant(
        "news-from-anybody",
        "A broker that is late tells of the topic before, when another one is away, and all that was handled is handled again.",
        (
            Patch(
                "ringfence_kafka/identities.py",
                "        return known != self._told[topic] and not as_before\n",
                "        return False\n",
            ),
        ),
        f"{_ASKING}::test_one_that_is_late",
    ),
    Mutant(
        "ids-of-another-spelling",
        "Topic IDs are written as Kafka's tools write them: a lease of the version before is one of another topic.",
        (Patch("ringfence_kafka/identities.py", "base64.b64encode", "base64.urlsafe_b64encode"),),
        f"{_ASKING}::test_the_answer",
    ),
    Mutant(
        "asking-makes-a-topic",
        "On a cluster that makes topics by itself, a topic that was deleted is back as soon as somebody looks for it.",
        (
            Patch(
                "ringfence_kafka/identities.py",
                'compact.array(asked) + b"\\0" + b"\\0"',
                'compact.array(asked) + b"\\1" + b"\\0"',
            ),
        ),
        f"{_ASKING}::test_the_question",
    ),
)
