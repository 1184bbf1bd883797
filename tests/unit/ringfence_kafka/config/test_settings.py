import re
import socket
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.config.load import load, validate
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.protocol import wire_names

SHIPPED = Path(__file__).parents[4] / "conf" / "ringfence.toml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ringfence.toml"


def _fault(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        validate(data)
    return str(caught.value)


def _orders(**keys: Any) -> dict[str, Any]:
    return {"addresses": [{"name": "orders"} | keys]}


# -- what is valid ------------------------------------------------------------------------------------------


def test_shipped_file_says_the_defaults() -> None:
    """conf/ringfence.toml loads, has the address ``orders``, and states nothing but the defaults."""
    assert load(SHIPPED, {}) == validate(_orders())


def test_topics_of_an_address() -> None:
    """Topics derive from the names of address and application, or have names of their own; internal ones have none."""
    (dropping,) = validate(_orders()).addresses
    (diverting,) = validate(_orders(duplicates="divert")).addresses
    names = {"input_topic": "a", "accepted_topic": "b", "quarantine_topic": "c", "duplicates_topic": "d"}
    (renamed,) = validate(_orders(duplicates="divert", **names)).addresses

    internal = {"changelog": "rf-orders-changelog", "forward topic": "rf-orders-forward"}
    accepted, quarantine = {"accepted topic": "orders.accepted"}, {"quarantine topic": "orders.quarantine"}
    own = {"input topic": "orders"} | accepted | quarantine | internal
    assert dropping.topics("rf") == own
    assert diverting.topics("rf") == own | {"duplicates topic": "orders.duplicates"}
    assert renamed.topics("rf") == internal | {key.replace("_", " "): topic for key, topic in names.items()}


# -- patterns ---------------------------------------------------------------------------------------------------


def _sizes(*entries: dict[str, Any], **defaults: Any) -> dict[str, int]:
    """``id_cache_size`` of the addresses under these entries."""
    settings = validate({"address_defaults": defaults, "addresses": list(entries)})
    return {address.name: address.id_cache_size for address in settings.addresses}


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*", {"orders", "orders-1", "orders-12", "Orders-1"}),
        ("orders-[!2]", {"orders-1"}),
        ("[A-Z]*", {"Orders-1"}),
    ],
)
def test_pattern_matches(pattern: str, matched: set[str]) -> None:
    """A pattern matches whole names, as in a shell, with case. It is not an address itself."""
    names = ("orders", "orders-1", "orders-12", "Orders-1")
    entries: list[dict[str, Any]] = [
        {"name": pattern, "id_cache_size": 7},
        *({"name": name} for name in names),
    ]

    assert _sizes(*entries, id_cache_size=5) == {name: 7 if name in matched else 5 for name in names}


def test_most_specific_pattern_wins_key_by_key() -> None:
    """The entry of the name, then patterns with more literal characters, then the defaults; each key for itself.

    Wildcards and sets count as no characters. The place in the file decides only between equal patterns: the later one wins.
    """
    defaults = {"id_cache_size": 1, "partitions": 1, "replication_factor": 1, "id_max_age": 1}
    entries: list[dict[str, Any]] = [
        {"name": "orders-eu-1", "id_cache_size": 4},
        {"name": "orders-eu-*", "id_cache_size": 3, "partitions": 3},
        {"name": "orders-*", "id_cache_size": 2, "partitions": 2, "replication_factor": 2},
        {"name": "order[s][-]????", "partitions": 9},
    ]
    equal = {"name": "orders-*", "id_cache_size": 2}, {"name": "*rders-1", "id_cache_size": 3}

    for order in (1, -1):
        (address,) = validate({"address_defaults": defaults, "addresses": entries[::order]}).addresses
        found = (address.id_cache_size, address.partitions, address.replication_factor, address.id_max_age)
        assert found == (4, 3, 2, 1)
    assert _sizes(*equal, {"name": "orders-1"}) == {"orders-1": 3}


def test_folders() -> None:
    """The state folder has the name of the instance, or of host and port. Runs have a folder in the data folder, or a place of their own."""
    here, elsewhere = validate({"app": {"web_port": 7000}}), {"data_dir": "/var/rf", "instance": "one"}
    assert here.state_dir == Path("data") / f"{socket.gethostname()}-7000"
    assert here.runs_dir == "data/reconcile"
    assert validate({"app": elsewhere}).state_dir == Path("/var/rf/one")
    assert validate({"app": elsewhere}).runs_dir == "/var/rf/reconcile"
    own = {"state_dir": "s3a://bucket/nights"}
    assert validate({"app": elsewhere, "reconcile": own}).runs_dir == "s3a://bucket/nights"


def test_static_members_have_names() -> None:
    """The default name has the host's, which is another one after each restart of a container."""
    with pytest.raises(ConfigurationError, match=r"static_membership = true needs app\.instance"):
        validate({"app": {"static_membership": True}})
    named = validate({"app": {"static_membership": True, "instance": "orders-0"}})
    assert named.app.instance_name == "orders-0"


@pytest.mark.parametrize("servers", ["a:1", "a:65535", "a:1,b:2", "a:1, b:2", "[::1]:9092", "kafka_1.x:1"])
def test_bootstrap_servers(servers: str) -> None:
    assert validate({"kafka": {"bootstrap_servers": servers}}).kafka.bootstrap_servers == servers


# -- what is not: each text names key, value and way out ---------------------------------------------------------


FORMS = "must be 'header', 'key', 'value', 'header:NAME', 'value:/json/pointer', or a list of these without 'header'"
BAD_FORMS: list[tuple[Any, str]] = [
    ("body", FORMS),
    (["key", 3], FORMS),
    ([f"header:{number}" for number in range(9)], "a list has 1 to 8 forms: name those that are unique together"),
    (["header", "key"], "'header' cannot be in a list: name each header, as in 'header:ce_id'"),
    (["key", "header:a", "key"], "'key' occurs twice: remove one of them"),
    ("header:", "'header:' names no header: write the name behind the colon, as in 'header:ce_id'"),
    ("header:_RF_A", "'_RF_A' begins with _RF_, which Ringfence itself writes"),
    ("value:id", "'value:id': a JSON pointer begins with /, as in 'value:/order/id'"),
    ("value:/a~2b", "'value:/a~2b': in a JSON pointer ~0 stands for ~ and ~1 for /; escape the ~"),
]  # fmt: skip
NO_SETTING = "names no setting: use RINGFENCE_<SECTION>__<KEY> with a section of address_defaults, app, kafka, reconcile, or unset it"
ID_COUNT = "0 to 2,147,483,647 IDs"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        # unknown keys: the nearest known one, or all that are known there
        ("id_cach_size", 3, "unknown key: did you mean 'id_cache_size'?"),
        ("kafak", {}, "unknown key: did you mean 'kafka'?"),
        ("app.webport", 1, "unknown key: did you mean 'web_port'?"),
        ("kafka.zzz", "x", ("unknown key: known keys are bootstrap_servers, command_config, properties, sasl_mechanism, sasl_oauth_callback, "
         "sasl_oauth_client_id, sasl_oauth_client_secret_env, sasl_oauth_scope, sasl_oauth_token_url, sasl_password_env, sasl_username, "
         "security_protocol, ssl_cafile, ssl_certfile, ssl_key_password_env, ssl_keyfile")),
        # wrong types: a string is no number, true is no number, a number is no string, and a table is a table
        ("id_cache_size", "4", f"must be a whole number, {ID_COUNT}"),
        ("partitions", 2.0, "must be a whole number, 1 to 100,000"),
        ("app.id", 4, "must be text in quotes"),
        ("addresses", 3, "must be a list"),
        ("kafka", 3, "must be a table"),
        ("id_max_age", True, "must be a number, 0 or more seconds"),
        ("persist_id_cache", 1, "must be true or false"),
        # numbers out of range
        ("id_cache_size", 2**31, f"must be {ID_COUNT}"),
        ("app.session_timeout", 5, "must be 6 to 90 seconds"),
        ("app.resident_ids_max", -1, "must be 0 or more IDs"),
        ("reconcile.executor_timeout", 0, "must be more than 0 seconds"),
        ("reconcile.report_url", "javascript:1", "write an address that begins with https:// or http://"),
        ("reconcile.ring_confidence", 99.9, "must be more than 0, up to 1"),
        ("id_max_age", float("nan"), "must be a finite number, 0 or more seconds"),
        # values that a key does not take
        *(("duplicate_id_from", form, expected) for form, expected in BAD_FORMS),
        ("duplicates", "keep", "must be 'drop' or 'divert'"),
        ("duplicate_id_headers", [], "needs at least one header name; to switch detection off set id_cache_size = 0"),
        ("duplicate_id_headers", ["X", ""], "an empty header name can match nothing; remove it"),
    ],
)  # fmt: skip
def test_a_fault_of_one_key(key: str, value: Any, expected: str) -> None:
    """The error names the key, its value and the valid ones. A key without a table belongs to the address ``orders``."""
    section, _, name = key.partition(".")
    data, place = ({section: {name: value}} if name else {key: value}), key
    if not name and key not in {"addresses", "kafak", "kafka"}:
        data, place = _orders(**data), f"addresses[orders].{key}"

    assert _fault(data) == f"settings: {place} = {value!r}: {expected}"


NO_MAX = "needs id_cache_size_max, the IDs that a lane may keep for it: set it above id_cache_size = 20000"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"duplicate_id_headers": ["X", 3]}, ".duplicate_id_headers.1 = 3: must be text in quotes"),
        ({"group_header": "X", "default_group": ""}, ".default_group = '': must not be empty"),
        ({"default_group": "none"},
         ": default_group = 'none' has no effect without group_header: remove it, or name the header"),
        ({"duplicate_id_headers": ["X"], "duplicate_id_from": "header:ID"},
         (": duplicate_id_headers = ['X'] has no effect with duplicate_id_from = 'header:ID': "
         "remove it, or write duplicate_id_from = 'header', which looks for these headers")),
        ({"duplicate_id_from": ["value", "key"], "on_conflict": "divert"},
         (": on_conflict = 'divert' has no effect with duplicate_id_from = ['value', 'key']: "
         "equal IDs have equal values there; remove one of the two")),
        ({"duplicates_topic": "d"}, (": duplicates_topic = 'd' has no effect with duplicates = 'drop': "
         "remove it, or set duplicates or on_conflict to 'divert'")),
        ({"id_min_age": "24h"}, f": id_min_age = '1d' {NO_MAX}"),
        ({"id_min_age": "1h", "id_cache_size_max": 20_000}, f": id_min_age = '1h' {NO_MAX}, it is 20000"),
        ({"id_cache_size_max": 30_000},
         ": id_cache_size_max = 30000 has no effect without id_min_age: remove it, or set id_min_age"),
        ({"id_min_age": 5, "id_cache_size": 0, "id_cache_size_max": 9},
         ": id_min_age = '5s' has no effect with id_cache_size = 0, which switches detection off: raise it, or remove id_min_age"),
        ({"id_min_age": "2h", "id_max_age": "1h", "id_cache_size_max": 30_000},
         ": id_min_age = '2h' is longer than id_max_age = '1h', after which an ID no longer counts: raise id_max_age, or remove it"),
        ({"id_min_age": "2h", "id_cache_size_max": 30_000, "persist_id_cache": False},
         (": id_min_age = '2h' cannot be kept with persist_id_cache = false, as a ring in memory only forgets all IDs "
         "whenever its lane opens: remove one of them")),
    ],
)  # fmt: skip
def test_a_fault_of_several_keys(keys: dict[str, Any], expected: str) -> None:
    assert _fault(_orders(**keys)) == f"settings: addresses[orders]{expected}"


BAD_NAME = (
    "no topic can have such a name: use letters, digits, dots, underscores, hyphens, *, ? and closed [sets]"
)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["orders"], "[1] = 'orders': must be a table"),
        ([{"name": "orders"}, {"partitions": 3}], "[2].name: missing: add it"),
        ([{"name": "orders", "mode": "observe", "transaction_addresses": ["stock"]}, {"name": "stock"}],
         (": 'orders' has mode = 'observe' and 'stock' of its transaction_addresses 'enforce': "
         "a transaction passes or is dropped as a whole; set the same mode for both")),
        ([{"name": "orders"}, {"name": "returns"}, {"name": "orders"}],
         ": 'orders' is listed 2 times; keep one [[addresses]] entry of it"),
        ([{"name": "a.b"}, {"name": "a_b"}],
         (": the input topic of address 'a.b' would be topic 'a.b' and the input topic of address 'a_b' 'a_b': "
         "Kafka does not allow two topics that differ only in dots and underscores; rename one")),
        *(([{"name": name}], f"[{name}].name = {name!r}: {BAD_NAME}") for name in ("orders [eu", "a b*", "ä*", "[]*")),
        ([{"name": "orders"}, {"name": "BRIDGE.orders"}],
         "[BRIDGE.orders].name = 'BRIDGE.orders': begins with BRIDGE., which stands for the hop memory of an address: choose another name"),
    ],
)  # fmt: skip
def test_a_fault_of_the_addresses(entries: list[Any], expected: str) -> None:
    assert _fault({"addresses": entries}) == f"settings: addresses{expected}"


@pytest.mark.parametrize("key", ["input_topic", "accepted_topic", "duplicates_topic", "quarantine_topic"])
def test_topic_name_that_is_none(key: str) -> None:
    for topic, expected in (
        ("a b", "use letters, digits"), ("", "use letters, digits"), ("a" * 201, "has 201 characters: 1 to 200 are possible"),
    ):  # fmt: skip
        fault = _fault(_orders(duplicates="divert", **{key: topic}))

        assert fault.startswith(f"settings: addresses[orders].{key} = {topic!r}: {expected}")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("id_cach_size", 3, "3: unknown key: did you mean 'id_cache_size'?"),
        ("duplicate_id_headers", [""], "['']: an empty header name can match nothing; remove it"),
        ("password", "hunter2", "'(hidden)': unknown key: known keys are accepted_topic, default_group, "),
        ("input_topic", "x", "'x': only the entry of one name can have it: move it there"),
    ],
)
@pytest.mark.parametrize("others", [[], ["orders-1", "orders-2"]])
def test_fault_in_a_pattern(key: str, value: Any, expected: str, others: list[str]) -> None:
    """An error in a pattern is reported once, at the pattern, even if it matches nothing yet."""
    entries: list[dict[str, Any]] = [{"name": other} for other in others]

    fault = _fault({"addresses": [{"name": "orders-*", key: value}, *entries]})

    assert fault.startswith(f"settings: addresses[orders-*].{key} = {expected}")
    assert len(fault.splitlines()) == 1


@pytest.mark.parametrize(
    ("servers", "culprit"),
    [
        *(
            (text, text)
            for text in (
                ":9092",
                "a:65536",
                "a:²",
                "[:9092",
                "]:9092",
                "[]:9092",
                "[::1]x:9092",
                "http://a:9092",
                "::1:9092",
            )
        ),
        ("a:1,b", "b"),
        ("a:1,", ""),
    ],
)
def test_bad_bootstrap_servers(servers: str, culprit: str) -> None:
    assert _fault({"kafka": {"bootstrap_servers": servers}}) == (
        f"settings: kafka.bootstrap_servers = {servers!r}: {culprit!r} is not host:port or [IPv6]:port; "
        "write for example 127.0.0.1:9092 or [::1]:9092"
    )


@pytest.mark.parametrize(
    ("instance", "reason"), [("..", "not only dots"), ("reconcile", "reconciliation run")]
)
def test_a_worker_has_a_folder_of_its_own(instance: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"app\.instance = '{re.escape(instance)}': .*{reason}"):
        validate({"app": {"instance": instance}})


@pytest.mark.parametrize(
    ("addresses", "topic", "first", "second"),
    [
        ("orders orders.accepted", "orders.accepted", "accepted topic@orders", "input topic@orders.accepted"),
        ("rf-progress", "rf-progress", "progress of consumer groups", "input topic@rf-progress"),
        ("orders orders.dlq", "orders.dlq", "dead-letter topic@orders", "input topic@orders.dlq"),
        ({"quarantine_topic": "orders"}, "orders", "input topic@orders", "quarantine topic@orders"),
        ({"input_topic": "rf-orders-forward"}, "rf-orders-forward", "input topic@orders", "forward topic@orders"),
    ],
)  # fmt: skip
def test_colliding_topics(addresses: str | dict[str, str], topic: str, first: str, second: str) -> None:
    """A topic cannot serve two purposes, of one address or of two in any order."""
    entries = [{"name": name} for name in addresses.split()] if isinstance(addresses, str) else None
    data = _orders(**addresses) if isinstance(addresses, dict) else {"addresses": entries}
    claims = (re.sub("@(.*)", r" of address '\1'", claim) for claim in (first, second))

    assert _fault({"app": {"id": "rf"}} | data) == (
        f"settings: addresses: topic {topic!r} would be both the {' and the '.join(claims)}; rename one"
    )


@pytest.mark.parametrize(
    "names", [["a", "a-b", "a-b-c"], ["journal", "progress", "consumer"], ["a-1", "a", "a-1-0"]]
)
def test_names_that_only_look_alike(names: list[str]) -> None:
    """Addresses and groups whose names begin alike, or like ours, share no topic, no transactional ID and no folder."""
    settings = validate({"addresses": [{"name": name} for name in names]})
    topics = [topic for address in settings.addresses for topic in address.topics("a").values()]
    lanes = [(name, number) for name in names for number in range(12)]
    places = list(product([*names, *(f"{name}/{name}" for name in names), ""], names, (1, 11)))
    of_consumers = {wire_names.consumer_transactional_id("a", *place) for place in places}

    assert len(set(topics)) == len(topics)
    assert len({wire_names.transactional_id("a", *lane) for lane in lanes}) == len(lanes)
    assert len({wire_names.lane_name(*lane) for lane in lanes}) == len(lanes)
    assert len(of_consumers) == len(places)
    assert all("/" in id_ for id_ in of_consumers)  # no address has one


def test_topics_of_the_cluster_itself() -> None:
    """The cluster's own topics are refused, because advice such as another cleanup.policy would ruin the cluster."""
    for keys in ({"name": "__consumer_offsets"}, {"name": "a", "accepted_topic": "__consumer_offsets"}):
        fault = _fault({"addresses": [keys]})
        assert fault.endswith("would be '__consumer_offsets', which is Kafka's own: choose another name")


def test_topics_too_long_for_kafka() -> None:
    """The names that are made of those in the file have a limit too: the longest that fits, and one more."""
    app_id = "a" * 100
    fits = "b" * (249 - len(f"{app_id}--changelog"))
    assert validate({"app": {"id": app_id}, "addresses": [{"name": fits}]}).addresses[0].name == fits

    fault = _fault({"app": {"id": app_id}, "addresses": [{"name": fits + "b"}]})

    assert f"address '{fits}b' would be topic '{app_id}-{fits}b-changelog', which has 250 characters" in fault
    assert fault.endswith("Kafka allows 249; choose a shorter name, or a shorter app.id")


def test_fault_of_the_defaults_is_told_once() -> None:
    """A problem in [address_defaults] is reported there, and not again at each address."""
    entries = [{"name": "o*"}, {"name": "orders"}, {"name": "returns", "id_cache_size": -1}]
    fault = _fault({"address_defaults": {"partitions": 0}, "addresses": entries})

    assert [line.split(" = ")[0] for line in fault.splitlines()] == [
        "settings: address_defaults.partitions",
        "settings: addresses[returns].id_cache_size",
    ]


# -- the file ---------------------------------------------------------------------------------------------------


def test_no_file_that_can_be_read(file: Path) -> None:
    """A missing or unreadable file, or a folder, is an error, and defaults do not replace it.

    TOML is UTF-8, with or without a byte order mark.
    """

    def refused(place: Path, expected: str) -> None:
        with pytest.raises(ConfigurationError, match=rf"^{re.escape(str(place))}: {expected}$"):
            load(place, {})

    way_out = "name a readable file with --config FILE or in RINGFENCE_CONFIG"
    refused(file, f"No such file or directory: {way_out}")
    refused(file.parent, f"Is a directory: {way_out}")
    file.write_bytes(b"[app]\nid x\n")
    refused(file, "not TOML: .*line 2.*")
    file.write_bytes(b'[app]\nid = "\xff"\n')
    refused(file, "not TOML: 'utf-8' codec.*")
    file.write_text('[app]\nid = "x"\n', "utf-8-sig")
    assert load(file, {}).app.id == "x"


# -- the environment ----------------------------------------------------------------------------------------------


def test_environment_over_the_file(file: Path) -> None:
    """A variable overrides keys and defaults: with bare text, quoted text, a number or a list. An entry still overrides a default."""
    file.write_text(
        '[app]\nid = "file"\nweb_port = 1\n'
        '[[addresses]]\nname = "orders"\n[[addresses]]\nname = "returns"\nid_cache_size = 9\n'
    )
    environ = {
        "KAFKA__BOOTSTRAP_SERVERS": "a:1,b:2", "APP__ID": '"quoted"', "APP__INSTANCE": "", "APP__SESSION_TIMEOUT": "7",
        "ADDRESS_DEFAULTS__ID_CACHE_SIZE": "7", "ADDRESS_DEFAULTS__DUPLICATE_ID_HEADERS": '["A", "B"]',
    }  # fmt: skip

    settings = load(file, {f"RINGFENCE_{key}": value for key, value in environ.items()} | {"PATH": "/bin"})

    app = settings.app
    assert (app.id, app.instance, app.session_timeout, app.web_port) == ("quoted", "", 7, 1)
    assert settings.kafka.bootstrap_servers == "a:1,b:2"
    assert [address.id_cache_size for address in settings.addresses] == [7, 9]
    assert settings.addresses[0].duplicate_id_headers == ("A", "B")


@pytest.mark.parametrize(
    ("content", "environ", "expected"),
    [
        ("[app]\nweb_port = -1\n", {}, ": app.web_port = -1: must be 0 to 65,535"),
        ("", {"RINGFENCE_APP__WEB_PORT": "seven"},
         " with RINGFENCE_APP__WEB_PORT: app.web_port = 'seven': must be a whole number, 0 to 65,535"),
        ("app = 3\n", {"RINGFENCE_APP__ID": "x"}, ": app = 3: must be a table"),
        *(("", {variable: "x"}, f"environment: {variable} {NO_SETTING}")
          for variable in ("RINGFENCE_KAFKAA__BOOTSTRAP_SERVERS", "RINGFENCE_ADDRESSES__NAME")),
    ],
)  # fmt: skip
def test_a_fault_names_file_and_variable(
    file: Path, content: str, environ: dict[str, str], expected: str
) -> None:
    file.write_text(content)

    with pytest.raises(ConfigurationError) as caught:
        load(file, environ)

    assert str(caught.value).removeprefix(str(file)) == expected


def test_environment_beside_the_settings(file: Path) -> None:
    file.write_text("")
    others = ["RINGFENCE_FAILPOINTS", "RINGFENCE_CACHE", "APP__ID", "RINGFENCE_"]
    of_kubernetes = ["RINGFENCE_PORT", "RINGFENCE_PORT_6066_TCP_ADDR", "RINGFENCE_WEB_SERVICE_PORT"]

    assert load(file, dict.fromkeys(others + of_kubernetes, "tcp://10.0.0.1:6066")) == validate({})


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a b/\u00f6", "addresses[a b/\u00f6].name = 'a b/\u00f6': use letters, digits, dots, underscores and hyphens"),
        ("..", "and not only dots"),
        (7, "addresses[7].name = 7"),
        ("x" * 201, "has 201 characters: 1 to 200 are possible"),
        ("x" * 195, "choose one of at most 189 characters, or set accepted_topic and duplicates_topic and quarantine_topic"),
    ],
)  # fmt: skip
def test_a_bad_address_name_is_one_fault(name: Any, fault: str) -> None:
    """A bad name of an address is one problem, without one more for each of its topics."""
    with pytest.raises(ConfigurationError) as caught:
        validate({"addresses": [{"name": name}]})

    assert fault in str(caught.value)
    assert "\n" not in str(caught.value).replace(str(name), "")


def test_a_named_header_replaces_inherited_ones() -> None:
    """An address may name its header where the defaults list headers; the other way round its list would have no effect."""
    listed, by_name = {"duplicate_id_headers": ["X"]}, {"duplicate_id_from": "header:ID"}
    settings = validate({"address_defaults": listed, "addresses": [{"name": "orders", **by_name}]})

    assert settings.addresses[0].id_headers == ("ID",)
    assert validate({"address_defaults": by_name}).target("elsewhere").id_headers == ("ID",)
    with pytest.raises(ConfigurationError, match="has no effect with duplicate_id_from"):
        validate({"address_defaults": by_name, "addresses": [{"name": "orders", **listed}]})
