"""Bugs in what people who run Kafka expect: options, names, offsets, and what nobody may see."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_TRANSPORT: Final = "app/worker/transport.py"
_LOAD: Final = "ringfence_kafka/config/load.py"
_PROPERTIES: Final = "ringfence_kafka/config/properties.py"
_ACCESS: Final = "ringfence_kafka/access.py"
_OAUTH: Final = "ringfence_kafka/oauth.py"
_GUARD: Final = "ringfence_client/guard.py"
_RULES: Final = "app/verbs/topic_rules.py"
_PROPERTIES_TESTS: Final = "tests/unit/test_properties.py"

MUTANTS: Final = (
    Mutant(
        "markers-never-passed",
        "A worker at rest shows a lag of one for each partition that ends in a marker, and what scales by lag never scales down.",
        (Patch(_TRANSPORT, "return batches | self._quiet(subscriptions)", "return batches"),),
        "tests/integration/test_transport.py::test_markers_travel_alone_after_a_while",
    ),
    Mutant(
        "quiet-stretch-kept",
        "The next batch begins where a stretch began that has travelled already, and the lane asks the cluster about each.",
        (
            Patch(
                _TRANSPORT,
                "                begin, end = self._forget_empty(tp)\n",
                "                begin, end = self._empty[tp]\n                del self._empty_since[tp]\n",
            ),
        ),
        "tests/integration/test_transport.py::test_markers_travel_alone_after_a_while",
    ),
    Mutant(
        "a-start-is-tried-once",
        "A broker that goes away while a worker starts ends it with a trace, or has it hang.",
        (
            Patch(
                "app/worker/connecting.py",
                "            await asyncio.sleep(AGAIN_S)\n",
                "            raise\n",
            ),
        ),
        "tests/integration/test_worker_start.py::test_the_broker_comes_back",
    ),
    Mutant(
        "secrets-on-the-command-line",
        "A password in -X or in [kafka.properties] is taken, and everybody on the machine sees it.",
        (Patch(_PROPERTIES, "if not from_file and (", "if False and ("),),
        f"{_PROPERTIES_TESTS}::test_refused",
    ),
    Mutant(
        "command-config-mixed-with-the-file",
        "Login and protocol come from two places, and a file that gets in with kafka-topics.sh does not here.",
        (
            Patch(
                _LOAD,
                'table = {key: value for key, value in table.items() if key in kept} | {"command_config": file}',
                'table = dict(table) | {"command_config": file}',
            ),
        ),
        f"{_PROPERTIES_TESTS}::test_a_command_config_of_the_command_line_is_alone",
    ),
    Mutant(
        "outputs-with-the-clusters-retention",
        "Outputs of an input that is kept for long are deleted sooner, and consumers that were away lose messages.",
        (Patch(_RULES, "**room, **_kept(present)", "**room"),),
        "tests/unit/test_topic_rules.py::test_everything_follows_the_input_as_it_is",
    ),
    Mutant(
        "token-used-to-its-end",
        "A token that ends on the way to the broker is refused, at each renewal.",
        (Patch(_OAUTH, "RENEWED_AT: Final = 0.8", "RENEWED_AT: Final = 1.0"),),
        "tests/unit/test_oauth.py::test_kept_and_renewed",
    ),
    Mutant(
        "token-for-each-client",
        "A worker of a thousand lanes asks the identity provider for a thousand tokens at each renewal.",
        (Patch(_OAUTH, "    if key not in _SOURCES:\n", "    if True:\n"),),
        "tests/unit/test_oauth.py::test_clients_share_tokens",
    ),
    Mutant(
        "refused-token-taken-for-a-login",
        "A broker that refuses a token looks as if it were ill.",
        (Patch(_ACCESS, "\naiokafka.conn.OAuthAuthenticator = TokenLogin\n", "\n"),),
        "tests/integration/test_security.py::test_refused",
    ),
    Mutant(
        "closed-connection-means-away",
        "A broker that ends sessions makes workers unready at each end.",
        (Patch("ringfence_kafka/watch.py", "            if self.away:\n", "            if True:\n"),),
        "tests/unit/test_watch.py::test_a_connection_that_was_closed",
    ),
    Mutant(
        "health-tells-everything",
        "Whoever reaches the port learns lanes, topics and faults without the token.",
        (Patch(_GUARD, "request.path == _ALIVE", "request.path in {_ALIVE, _READY}"),),
        "tests/unit/test_guard.py::test_without_the_token",
    ),
    Mutant(
        "any-page-drops-messages",
        "A web page that an operator looks at drops messages of a consumer that their browser reaches.",
        (Patch(_GUARD, "if changes and", "if False and"),),
        "tests/unit/test_login.py::test_without_a_token_changes_are_checked_all_the_same",
    ),
    Mutant(
        "cookies-of-anybody",
        "A cookie that somebody made up opens the pages behind a token.",
        (
            Patch(
                "ringfence_client/login.py",
                "        hmac.compare_digest(cookie.encode(",
                "        bool(cookie) or hmac.compare_digest(cookie.encode(",
            ),
        ),
        "tests/unit/test_login.py::test_sessions_end",
    ),
    Mutant(
        "emptied-markers-stop-readers",
        "Where a producer has written its last, nobody reads a compacted partition on behind it, for a day.",
        (
            Patch(
                "ringfence_kafka/insides.py",
                "PartitionRecords._contains_abort_marker = _contains_abort_marker",
                "# ",
            ),
        ),
        "tests/integration/test_emptied_markers.py::test_read_over",
    ),
)
