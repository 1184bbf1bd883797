import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from conf.errors import ConfigurationError
from conf.load import load, validate
from conf.settings import AddressDefaults, AddressSettings, Settings

SHIPPED = Path(__file__).parents[2] / "conf" / "ringfence.toml"
ORDERS = '[[addresses]]\nname = "orders"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ringfence.toml"


def _fault(data: dict[str, Any]) -> str:
    """What a person reads about these settings."""
    with pytest.raises(ConfigurationError) as caught:
        validate(data)
    return str(caught.value)


def _orders(**keys: Any) -> dict[str, Any]:
    return {"addresses": [{"name": "orders"} | keys]}


# -- what is valid ------------------------------------------------------------------------------------------


def test_defaults() -> None:
    """Without any key the documented defaults are in force."""
    expected = {
        "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
        "app": {
            "id": "ringfence",
            "data_dir": "data",
            "instance": "",
            "web_host": "127.0.0.1",
            "web_port": 6066,
            "resident_ids_max": 1_000_000,
        },
        "address_defaults": {
            "partitions": 4,
            "replication_factor": 0,
            "id_cache_size": 20_000,
            "duplicate_id_headers": ("_AMQ_DUPL_ID", "_HQ_DUPL_ID"),
            "id_max_age": 0,
            "persist_id_cache": True,
            "duplicate_id_from": "header",
            "group_header": "",
            "default_group": "qpid.no-group",
            "partitioner": "murmur2",
            "duplicates": "drop",
        },
        "addresses": (),
    }

    assert validate({}).model_dump() == expected


def test_shipped_file_says_the_defaults() -> None:
    """conf/ringfence.toml loads, has the address ``orders``, and states nothing but the defaults."""
    assert load(SHIPPED, {}) == validate(_orders())


def test_address_defaults_reach_addresses() -> None:
    """A key of [address_defaults] holds for each address that does not say otherwise, and for that key only."""
    settings = validate(
        {
            "address_defaults": {"id_cache_size": 7, "partitions": 3},
            "addresses": [{"name": "orders"}, {"name": "returns", "id_cache_size": 9}],
        }
    )

    found = [(each.name, each.id_cache_size, each.partitions) for each in settings.addresses]
    assert found == [("orders", 7, 3), ("returns", 9, 3)]
    assert settings.address_defaults.id_cache_size == 7


def test_address_by_name() -> None:
    """An address is found by its whole name; an unknown one is None."""
    settings = validate({"addresses": [{"name": "orders"}, {"name": "returns"}]})

    assert settings.address("returns") == settings.addresses[1]
    assert settings.address("order") is None


def test_topics_of_an_address() -> None:
    """Input and accepted topic derive from the name."""
    (address,) = validate(_orders()).addresses

    assert (address.input_topic, address.accepted_topic) == ("orders", "orders.accepted")


def test_instance_name() -> None:
    """The state folder is named after the instance, or after host and web port; both are stable over restarts."""
    named = validate({"app": {"instance": "one", "data_dir": "/var/rf"}})
    unnamed = validate({"app": {"web_port": 7000}})

    assert named.state_dir == Path("/var/rf/one")
    assert unnamed.state_dir == Path("data") / f"{socket.gethostname()}-7000"


def test_immutable() -> None:
    """A worker runs from one state of the configuration: settings cannot be changed."""
    settings = validate(_orders())

    with pytest.raises(ValidationError, match="frozen"):
        settings.app.id = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        settings.addresses[0].id_cache_size = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partitions", 1),
        ("partitions", 100_000),
        ("replication_factor", 0),
        ("replication_factor", 32_767),
        ("id_cache_size", 0),
        ("id_cache_size", 2**31 - 1),
    ],
)
def test_bounds_are_inclusive(key: str, value: int) -> None:
    """The least and the greatest allowed number are allowed."""
    assert getattr(validate(_orders(**{key: value})).addresses[0], key) == value


@pytest.mark.parametrize("servers", ["a:1", "a:65535", "a:1,b:2", "a:1, b:2", "[::1]:9092"])
def test_bootstrap_servers(servers: str) -> None:
    """One or several host:port, also with spaces after the commas, also an IPv6 address."""
    assert validate({"kafka": {"bootstrap_servers": servers}}).kafka.bootstrap_servers == servers


def test_only_values_may_be_written() -> None:
    """A key that has one value in this version may be written with that value."""
    only = {
        "id_max_age": 0,
        "persist_id_cache": True,
        "duplicate_id_from": "header",
        "group_header": "",
        "default_group": "qpid.no-group",
        "partitioner": "murmur2",
        "duplicates": "drop",
    }

    assert validate(_orders(**only)) == validate(_orders())


# -- what is not: each text names key, value and way out ---------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            _orders(id_cach_size=3),
            "addresses[orders].id_cach_size = 3: unknown key: did you mean 'id_cache_size'?",
        ),
        ({"kafak": {}}, "kafak = {}: unknown key: did you mean 'kafka'?"),
        ({"app": {"webport": 1}}, "app.webport = 1: unknown key: did you mean 'web_port'?"),
        (
            {"kafka": {"zzz": "x"}},
            "kafka.zzz = 'x': unknown key: known keys are bootstrap_servers",
        ),
        (
            {"address_defaults": {"name": "x"}},
            (
                "address_defaults.name = 'x': unknown key: known keys are default_group, duplicate_id_from, "
                "duplicate_id_headers, duplicates, group_header, id_cache_size, id_max_age, partitioner, partitions, "
                "persist_id_cache, replication_factor"
            ),
        ),
    ],
)
def test_unknown_key(data: dict[str, Any], expected: str) -> None:
    """An unknown key is refused with the nearest known one, or with all that are known there."""
    assert _fault(data) == f"settings: {expected}"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            _orders(id_cache_size="4"),
            "addresses[orders].id_cache_size = '4': input should be a valid integer",
        ),
        (
            _orders(id_cache_size=True),
            "addresses[orders].id_cache_size = True: input should be a valid integer",
        ),
        (_orders(partitions=2.0), "addresses[orders].partitions = 2.0: input should be a valid integer"),
        ({"app": {"web_port": "6066"}}, "app.web_port = '6066': input should be a valid integer"),
        ({"app": {"id": 4}}, "app.id = 4: input should be a valid string"),
        (
            _orders(duplicate_id_headers="X"),
            "addresses[orders].duplicate_id_headers = 'X': input should be a list",
        ),
        (
            _orders(duplicate_id_headers=["X", 3]),
            "addresses[orders].duplicate_id_headers.1 = 3: input should be a valid string",
        ),
        ({"addresses": 3}, "addresses = 3: input should be a list"),
        ({"addresses": [{"name": 3}]}, "addresses[3].name = 3: input should be a valid string"),
        (
            {"addresses": ["orders"]},
            "addresses[1] = 'orders': input should be a valid dictionary or instance of AddressSettings",
        ),
        ({"kafka": 3}, "kafka = 3: input should be a valid dictionary or instance of KafkaSettings"),
        (
            {"address_defaults": 3, "addresses": [{"name": "orders"}]},
            "address_defaults = 3: input should be a valid dictionary or instance of AddressDefaults",
        ),
    ],
)
def test_wrong_type(data: dict[str, Any], expected: str) -> None:
    """A string is no number, true is no number, a number is no string, and a table is a table."""
    assert _fault(data) == f"settings: {expected}"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            _orders(id_cache_size=-1),
            "addresses[orders].id_cache_size = -1: input should be greater than or equal to 0",
        ),
        (
            _orders(id_cache_size=2**31),
            "addresses[orders].id_cache_size = 2147483648: input should be less than or equal to 2147483647",
        ),
        (
            _orders(partitions=0),
            "addresses[orders].partitions = 0: input should be greater than or equal to 1",
        ),
        (
            {"app": {"web_port": 65_536}},
            "app.web_port = 65536: input should be less than or equal to 65535",
        ),
        (
            {"app": {"resident_ids_max": -1}},
            "app.resident_ids_max = -1: input should be greater than or equal to 0",
        ),
    ],
)
def test_number_out_of_range(data: dict[str, Any], expected: str) -> None:
    """A number out of range is refused with the range."""
    assert _fault(data) == f"settings: {expected}"


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (_orders(input_topic="x"), "addresses[orders].input_topic = 'x'"),
        (_orders(quarantine_topic="x"), "addresses[orders].quarantine_topic = 'x'"),
        ({"kafka": {"security_protocol": "SSL"}}, "kafka.security_protocol = 'SSL'"),
        ({"bridges": []}, "bridges = []"),
    ],
)
def test_planned_key(data: dict[str, Any], key: str) -> None:
    """A key whose feature does not exist yet is told apart from a misspelt one."""
    assert _fault(data) == f"settings: {key}: this version does not have that feature: remove the key"


@pytest.mark.parametrize(
    ("key", "value", "only"),
    [
        ("id_max_age", 5, "0"),
        ("persist_id_cache", False, "True"),
        ("duplicate_id_from", "key", "'header'"),
        ("group_header", "X", "''"),
        ("default_group", "none", "'qpid.no-group'"),
        ("partitioner", "crc32", "'murmur2'"),
        ("duplicates", "divert", "'drop'"),
    ],
)
def test_value_of_a_later_version(key: str, value: Any, only: str) -> None:
    """Another value of a key that has one value in this version is refused with the one that is in force."""
    expected = (
        f"addresses[orders].{key} = {value!r}: this version supports {only} only: "
        "remove the key or set it to that"
    )

    assert _fault(_orders(**{key: value})) == f"settings: {expected}"


@pytest.mark.parametrize(
    ("key", "value"), [("id_max_age", False), ("id_max_age", 0.0), ("persist_id_cache", 1)]
)
def test_only_value_of_another_type(key: str, value: Any) -> None:
    """A value that merely equals the only one is of the wrong type: false is no number, 1 is no truth value."""
    assert _fault(_orders(**{key: value})).startswith(f"settings: addresses[orders].{key} = {value!r}: ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], "[]: needs at least one header name; to switch detection off set id_cache_size = 0"),
        (["X", ""], "['X', '']: an empty header name can match nothing; remove it"),
        (["_RF_SOURCE"], "['_RF_SOURCE']: '_RF_SOURCE' begins with _RF_, which Ringfence itself writes"),
    ],
)
def test_unusable_header_names(value: list[str], expected: str) -> None:
    """Header names that can match nothing, or that Ringfence writes itself, are refused."""
    fault = _fault(_orders(duplicate_id_headers=value))

    assert fault == f"settings: addresses[orders].duplicate_id_headers = {expected}"


@pytest.mark.parametrize(
    ("servers", "culprit"),
    [
        ("127.0.0.1", "127.0.0.1"),
        (":9092", ":9092"),
        ("a:", "a:"),
        ("a:b", "a:b"),
        ("a:0", "a:0"),
        ("a:65536", "a:65536"),
        ("a:1,b", "b"),
        ("a:1,,b:2", ""),
        ("a:1,", ""),
        ("a:²", "a:²"),
    ],
)
def test_bad_bootstrap_servers(servers: str, culprit: str) -> None:
    """The server that is no host:port is named, with an example of one."""
    assert _fault({"kafka": {"bootstrap_servers": servers}}) == (
        f"settings: kafka.bootstrap_servers = {servers!r}: {culprit!r} is not host:port; "
        "write for example 127.0.0.1:9092"
    )


@pytest.mark.parametrize("name", ["orders-*", "orders-?", "order[s]"])
def test_pattern(name: str) -> None:
    """A pattern is refused as a feature of a later version, not as a misspelt name."""
    assert _fault({"addresses": [{"name": name}]}) == (
        f"settings: addresses[{name}].name = {name!r}: this version does not have patterns: "
        "write one [[addresses]] entry a name"
    )


@pytest.mark.parametrize("name", ["a b", "a/b", "ä", "a\n", "", "a" * 201])
def test_name_that_is_no_topic(name: str) -> None:
    """A name that Kafka would refuse as a topic is refused here, with the name."""
    assert f".name = {name!r}: string should " in _fault({"addresses": [{"name": name}]})


@pytest.mark.parametrize("name", [".", ".."])
def test_dots_are_no_topic(name: str) -> None:
    """Kafka refuses the topics ``.`` and ``..``; so do we, with the name."""
    assert f".name = {name!r}: " in _fault({"addresses": [{"name": name}]})


def test_instance_stays_below_data_dir() -> None:
    """``..`` is no instance name: state must lie below data_dir."""
    assert "app.instance = '..': " in _fault({"app": {"instance": ".."}})


def test_missing_name() -> None:
    """An address without a name is told by its number in the file."""
    data = {"addresses": [{"name": "orders"}, {"partitions": 3}]}

    assert _fault(data) == "settings: addresses[2].name: missing: add it"


def test_duplicate_address() -> None:
    """An address that stands twice is refused by name."""
    assert _fault({"addresses": [{"name": "orders"}, {"name": "returns"}, {"name": "orders"}]}) == (
        "settings: addresses: 'orders' stands 2 times; keep one [[addresses]] entry of it"
    )


@pytest.mark.parametrize(
    ("names", "topic", "first", "second"),
    [
        (
            ["orders", "orders.accepted"],
            "orders.accepted",
            "the accepted topic of address 'orders'",
            "the input topic of address 'orders.accepted'",
        ),
        (
            ["orders.accepted", "orders"],
            "orders.accepted",
            "the input topic of address 'orders.accepted'",
            "the accepted topic of address 'orders'",
        ),
        (
            ["orders", "rf-orders-changelog"],
            "rf-orders-changelog",
            "the changelog of address 'orders'",
            "the input topic of address 'rf-orders-changelog'",
        ),
    ],
)
def test_colliding_topics(names: list[str], topic: str, first: str, second: str) -> None:
    """Two addresses whose names make one topic serve two purposes are refused, in either order."""
    data = {"app": {"id": "rf"}, "addresses": [{"name": each} for each in names]}

    assert _fault(data) == (
        f"settings: addresses: topic {topic!r} would be both {first} and {second}; rename one address"
    )


def test_every_fault_is_told_at_once() -> None:
    """Several faults are several lines, so that one run suffices to mend them."""
    fault = _fault({"app": {"web_port": -1}} | _orders(id_cache_size=-1))

    assert [line.split(" = ")[0] for line in fault.splitlines()] == [
        "settings: app.web_port",
        "settings: addresses[orders].id_cache_size",
    ]


def test_fault_of_the_defaults_is_told_once() -> None:
    """A fault in [address_defaults] is reported there, and not again at each address."""
    fault = _fault(
        {
            "address_defaults": {"partitions": 0},
            "addresses": [{"name": "orders"}, {"name": "returns", "id_cache_size": -1}],
        }
    )

    assert [line.split(" = ")[0] for line in fault.splitlines()] == [
        "settings: address_defaults.partitions",
        "settings: addresses[returns].id_cache_size",
    ]


# -- the file ---------------------------------------------------------------------------------------------------


def test_file(file: Path) -> None:
    """The keys of a file are in force."""
    file.write_text('[app]\nid = "x"\n[address_defaults]\nid_cache_size = 5\n' + ORDERS)

    settings = load(file, {})

    assert settings == Settings(
        app=validate({"app": {"id": "x"}}).app,
        address_defaults=AddressDefaults(id_cache_size=5),
        addresses=(AddressSettings(name="orders", id_cache_size=5),),
    )


def test_fault_names_the_file(file: Path) -> None:
    """A fault begins with the file that it stands in."""
    file.write_text("[app]\nweb_port = -1\n")

    with pytest.raises(ConfigurationError) as caught:
        load(file, {})

    assert str(caught.value) == f"{file}: app.web_port = -1: input should be greater than or equal to 0"


def test_missing_file(file: Path) -> None:
    """Without the file nothing runs, least of all on defaults."""
    with pytest.raises(ConfigurationError) as caught:
        load(file, {})

    expected = f"{file}: No such file or directory: name a readable file with --config FILE"
    assert str(caught.value) == expected


def test_folder_instead_of_file(tmp_path: Path) -> None:
    """A folder is no file."""
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {})

    assert str(caught.value) == f"{tmp_path}: Is a directory: name a readable file with --config FILE"


def test_bad_toml(file: Path) -> None:
    """What is no TOML is told with its line."""
    file.write_text("[app]\nid x\n")

    with pytest.raises(ConfigurationError) as caught:
        load(file, {})

    assert str(caught.value).startswith(f"{file}: not TOML: ")
    assert "line 2" in str(caught.value)


def test_bad_encoding(file: Path) -> None:
    """TOML is UTF-8."""
    file.write_bytes(b'[app]\nid = "\xff"\n')

    with pytest.raises(ConfigurationError, match=r"not TOML: 'utf-8' codec"):
        load(file, {})


# -- the environment ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "raw", "place", "expected"),
    [
        ("RINGFENCE_KAFKA__BOOTSTRAP_SERVERS", "a:1,b:2", ("kafka", "bootstrap_servers"), "a:1,b:2"),
        ("RINGFENCE_APP__ID", "other", ("app", "id"), "other"),
        ("RINGFENCE_APP__ID", '"quoted"', ("app", "id"), "quoted"),
        ("RINGFENCE_APP__INSTANCE", "", ("app", "instance"), ""),
        ("RINGFENCE_APP__WEB_PORT", "7000", ("app", "web_port"), 7000),
        ("RINGFENCE_ADDRESS_DEFAULTS__ID_CACHE_SIZE", "1_000", ("address_defaults", "id_cache_size"), 1000),
        (
            "RINGFENCE_ADDRESS_DEFAULTS__DUPLICATE_ID_HEADERS",
            '["A", "B"]',
            ("address_defaults", "duplicate_id_headers"),
            ("A", "B"),
        ),
    ],
)
def test_environment_sets_a_key(
    file: Path, variable: str, raw: str, place: tuple[str, str], expected: object
) -> None:
    """A variable sets a key of each section: bare strings, quoted strings, numbers, lists."""
    file.write_text("")

    settings = load(file, {variable: raw, "PATH": "/bin"})

    section, key = place
    assert getattr(getattr(settings, section), key) == expected


def test_environment_beats_the_file(file: Path) -> None:
    """Where file and environment differ, the environment counts; the file's other keys stay."""
    file.write_text('[app]\nid = "file"\nweb_port = 1\n')

    app = load(file, {"RINGFENCE_APP__ID": "environment"}).app

    assert (app.id, app.web_port) == ("environment", 1)


def test_environment_reaches_addresses(file: Path) -> None:
    """A default from the environment reaches the addresses, and an address of the file still overrides it."""
    file.write_text(ORDERS + '[[addresses]]\nname = "returns"\nid_cache_size = 9\n')

    settings = load(file, {"RINGFENCE_ADDRESS_DEFAULTS__ID_CACHE_SIZE": "7"})

    assert [each.id_cache_size for each in settings.addresses] == [7, 9]


@pytest.mark.parametrize(
    "variable",
    [
        "RINGFENCE_KAFKAA__BOOTSTRAP_SERVERS",
        "RINGFENCE_APP",
        "RINGFENCE_APP__",
        "RINGFENCE_APP_ID",
        "RINGFENCE_ADDRESSES__NAME",
        "RINGFENCE_",
    ],
)
def test_environment_unknown_section(file: Path, variable: str) -> None:
    """A variable that names no section and key is refused with the sections that there are."""
    file.write_text("")

    with pytest.raises(ConfigurationError) as caught:
        load(file, {variable: "x"})

    assert str(caught.value) == (
        f"environment: {variable}='x' names no setting: use RINGFENCE_<SECTION>__<KEY> with a section of "
        "address_defaults, app, kafka, or unset it"
    )


def test_environment_unknown_key(file: Path) -> None:
    """A variable with an unknown key is refused as in the file, and the text names the variable."""
    file.write_text("")

    with pytest.raises(ConfigurationError) as caught:
        load(file, {"RINGFENCE_APP__WEBPORT": "7000"})

    assert str(caught.value) == (
        f"{file} with RINGFENCE_APP__WEBPORT: app.webport = 7000: unknown key: did you mean 'web_port'?"
    )


def test_environment_wrong_type(file: Path) -> None:
    """A value of the wrong type is refused as in the file, and the text names the variable."""
    file.write_text("")

    with pytest.raises(ConfigurationError) as caught:
        load(file, {"RINGFENCE_APP__WEB_PORT": "seven"})

    expected = f"{file} with RINGFENCE_APP__WEB_PORT: app.web_port = 'seven': input should be a valid integer"
    assert str(caught.value) == expected


def test_environment_beside_the_settings(file: Path) -> None:
    """Variables with the prefix that are no settings, and others, are left alone."""
    file.write_text("")
    others = dict.fromkeys(
        ("RINGFENCE_FAILPOINTS", "RINGFENCE_IVY_SETTINGS", "RINGFENCE_CACHE", "APP__ID"), "x"
    )

    assert load(file, others) == validate({})


def test_environment_does_not_hide_a_faulty_section(file: Path) -> None:
    """A section that is no table is a fault also where a variable names a key in it."""
    file.write_text("app = 3\n")

    with pytest.raises(ConfigurationError, match=r"app = 3: input should be a valid dictionary"):
        load(file, {"RINGFENCE_APP__ID": "x"})
