from pathlib import Path
from typing import Any

import pytest

from agents.bridge.plan import plans
from ringfence_kafka.config.load import load, validate
from ringfence_kafka.errors import ConfigurationError

PARIS = {"bootstrap_servers": "paris:9092"}
MANY = [{"name": f"{index:060}", **PARIS} for index in range(40)]


def _bridge(**keys: Any) -> dict[str, Any]:
    own = {"name": "to-paris", "source_topic": "orders.accepted", "target_address": "orders", "target": PARIS}
    return {"bridges": [own | keys]}


def _connection(**keys: Any) -> dict[str, Any]:
    members = [{"name": "berlin"}, {"name": "paris", **PARIS}]
    own = {"name": "eu", "this": "berlin", "addresses": ["orders-*"], "members": members}
    return {"addresses": [{"name": "orders-a"}, {"name": "orders-b"}], "cluster_connections": [own | keys]}


def _fault(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        validate(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_target_by_patterns() -> None:
    """A pattern among the addresses sets defaults for addresses of other clusters too; the more specific one counts."""
    patterns = [
        {"name": "orders-*", "partitioner": "crc32", "group_header": "Y"},
        {"name": "orders-a*", "group_header": "Z"},
    ]
    settings = validate(_bridge() | {"addresses": patterns, "address_defaults": {"group_header": "X"}})
    found = [settings.target(name) for name in ("orders-x", "orders-a", "others")]

    assert [address.name for address in found] == ["orders-x", "orders-a", "others"]
    assert [address.partitioner for address in found] == ["crc32", "crc32", "murmur2"]
    assert [address.group_header for address in found] == ["Y", "Z", "X"]


@pytest.mark.parametrize("tables", [_bridge(), _connection(addresses=["orders"]) | {"addresses": []}])
def test_target_that_does_not_fit(tables: dict[str, Any]) -> None:
    expected = "its address 'orders' has default_group = 'none' has no effect without group_header"

    assert expected in _fault(tables | {"address_defaults": {"default_group": "none"}})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"name": "status"}, "is a verb: choose another name"),
        ({"name": "a/b"}, "bridges[a/b].name = 'a/b'"),
        ({"filter_values": ["a"]}, "has no effect without filter_header"),
        ({"filter_header": "X"}, "needs filter_values"),
        ({"add_headers": {"_RF_X": "1"}}, "which Ringfence itself writes"),
        ({"add_headers": {"": "1"}}, "a header without a name"),
        ({"target": {}}, "needs bootstrap_servers"),
        ({"target": {"bootstrap_server": "paris:9092"}}, "did you mean 'bootstrap_servers'?"),
        ({"user_ids": "ignore", "use_duplicate_detection": False}, "a header of the hop states it"),
        ({"target": None, "source_topic": "orders"}, "would forward orders to itself"),
        ({"target": None}, "from which orders makes it, forever"),
        ({"name": "orders"}, "would write what is refused to orders.quarantine"),
        ({"target_topic": "to-paris.quarantine"}, "which is used for something else"),
    ],
)
def test_faulty_bridge(keys: dict[str, Any], said: str) -> None:
    assert said in _fault(_bridge(**keys))


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"addresses": [{"name": "payments"}]}, "payments.quarantine is the quarantine topic of address 'payments'"),
        ({"addresses": [{"name": "payments.quarantine"}]}, "is the input topic of address 'payments.quarantine'"),
        (_connection(addresses=["payments"]), "the quarantine topic of address 'payments'"),
    ],
)  # fmt: skip
def test_quarantine_of_another(tables: dict[str, Any], said: str) -> None:
    """Messages that the target refuses never go to a topic with another use."""
    found = _fault(tables | _bridge(name="payments"))

    assert found.startswith(
        "settings: bridges: 'payments' would write what is refused to payments.quarantine, "
    )
    assert said in found


def test_added_header_that_is_an_id() -> None:
    """An added header must not serve as ID, because all messages but one would be lost. It may be a part of one."""
    named = {"addresses": [{"name": "orders", "duplicate_id_from": "header:id"}]}
    in_parts = {"addresses": [{"name": "orders", "duplicate_id_from": ["header:ce_source", "header:ce_id"]}]}
    default = {"addresses": [{"name": "orders"}]}

    assert "would give all messages one duplicate ID" in _fault(_bridge(add_headers={"id": "x"}) | named)
    assert "one duplicate ID" in _fault(_bridge(add_headers={"_AMQ_DUPL_ID": "x"}) | default)
    assert validate(_bridge(add_headers={"ce_source": "/berlin"}) | in_parts).bridges


def test_one_cluster_for_two_members() -> None:
    """Two members may share a cluster if each group has one member. Otherwise it would get everything twice."""
    members = [{"name": "berlin"}, {"name": "paris", "bootstrap_servers": "127.0.0.1:9092"}]
    found = plans(validate(_connection(members=members, load_balancing="strict", addresses=["orders-a"])))

    assert [plan.target.bootstrap_servers for plan in found] == ["127.0.0.1:9092"] * 2
    assert "have the same bootstrap_servers" in _fault(_connection(members=members))


def test_duplicate_names() -> None:
    """Two bridges of one name would share a group, and each other's hops."""
    assert "'to-paris' is listed 2 times" in _fault({"bridges": _bridge()["bridges"] * 2})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"this": "rome"}, "this = 'rome' is not a member"),
        ({"members": [{"name": "berlin"}]}, "'berlin' is the only one"),
        ({"members": [{"name": "berlin"}, {"name": "paris"}]}, "'paris' needs bootstrap_servers"),
        ({"members": [{"name": "berlin"}, {"name": "paris", **PARIS}, {"name": "paris", **PARIS}]}, "'paris' is listed 2 times"),
        ({"addresses": ["returns-*"]}, "matches no [[addresses]] entry (there are orders-a, orders-b)"),
        ({"addresses": []}, "needs at least one address"),
        ({"load_balancing": "strict", "max_hops": 2}, "max_hops has no effect"),
        ({"load_balancing": "strict", "target": "{address}"}, "a copy would stay at berlin"),
        ({"load_balancing": "strict", "members": [{"name": "berlin"}, *MANY]}, "at most 2000 fit beside an offset"),
        ({"addresses": ["y" * 201]}, "it has 201 characters"),
        ({"addresses": ["or ders"]}, "addresses: 'or ders' cannot be an address: use letters"),
        ({"target": "x/{address}"}, "target = 'x/{address}': 'x/orders-a' cannot be an address: use letters"),
        ({"target": "{adress}"}, "only {address} is replaced"),
        ({"name": "x" * 60, "addresses": ["y" * 140]}, "200 are possible"),
    ],
)  # fmt: skip
def test_faulty_connection(keys: dict[str, Any], said: str) -> None:
    assert said in _fault(_connection(**keys))


def test_connection_names() -> None:
    """Patterns stand for the addresses that are configured. A strict connection includes this member."""
    (connection,) = validate(_connection(addresses=["orders-*", "returns"])).cluster_connections
    (strict,) = validate(_connection(load_balancing="strict")).cluster_connections

    assert connection.names(["orders-a", "orders-b", "others"]) == ["orders-a", "orders-b", "returns"]
    assert (connection.targets, strict.targets) == (["paris"], ["berlin", "paris"])
    assert connection.target_address("orders-a") == "orders-a"
    assert strict.target_address("orders-a") == "orders-a.shared"
    assert connection.bridge_name("paris", "orders-a") == "eu.berlin.paris.orders-a"


@pytest.mark.parametrize(
    ("keys", "configured", "names"),
    [
        ({"addresses": ["b", "*"]}, ["a", "a.shared", "a.shared.shared", "b.shared", "c"], ["b", "a", "c"]),
        ({"addresses": ["*", "a.shared"]}, ["a", "a.shared"], ["a", "a.shared"]),
        ({"addresses": ["*"], "load_balancing": "all", "target": "all"}, ["a", "all"], ["a"]),
    ],
)
def test_patterns_leave_out_targets(keys: dict[str, Any], configured: list[str], names: list[str]) -> None:
    """A topic that a connection itself fills is forwarded only if it is named, because consumers read it here."""
    (connection,) = validate(_connection(**{"load_balancing": "strict"} | keys)).cluster_connections

    assert connection.names(configured) == names


def test_passwords_may_have_our_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable with the password of a bridge or member does not count as a setting, whatever its name."""
    environ = dict.fromkeys(("RINGFENCE_A__B", "RINGFENCE_C__D", "RINGFENCE_E__F"), "x")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    login = 'security_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\nsasl_username = "u"\nsasl_password_env ='
    file = tmp_path / "ringfence.toml"
    file.write_text(
        '[[bridges]]\nname = "b"\nsource_topic = "s"\ntarget_address = "t"\n'
        f'[bridges.source]\nbootstrap_servers = "h:1"\n{login} "RINGFENCE_A__B"\n'
        f'[bridges.target]\nbootstrap_servers = "i:1"\n{login} "RINGFENCE_C__D"\n'
        '[[cluster_connections]]\nname = "eu"\nthis = "a"\naddresses = ["s"]\n'
        '[[cluster_connections.members]]\nname = "a"\n'
        f'[[cluster_connections.members]]\nname = "c"\nbootstrap_servers = "h:1"\n{login} "RINGFENCE_E__F"\n'
    )
    settings = load(file, environ)

    assert settings.bridges[0].source is not None
    member = settings.cluster_connections[0].members[1].kafka()
    assert member is not None
    assert (member.sasl_password_env, member.secret("sasl_password")) == ("RINGFENCE_E__F", "x")
    assert settings.cluster_connections[0].members[0].kafka() is None


def _orders(name: str, size: int) -> dict[str, Any]:
    return {"addresses": [{"name": "other"}, {"name": name, "id_cache_size": size}]}


@pytest.mark.parametrize(
    ("tables", "window"),
    [(_orders("orders", 2_000), 2_000), (_orders("orders", 0), 5_000), (_orders("ord*", 300), 300), ({"addresses": []}, 5_000)],
)  # fmt: skip
def test_window_follows_the_target(tables: dict[str, Any], window: int) -> None:
    """The window equals the number of messages that the target distinguishes, as far as the configuration knows."""
    for made in (_bridge(), _connection(addresses=["orders"])):
        (plan,) = plans(validate(made | tables))

        assert plan.window == window


def test_window_without_hops() -> None:
    """The target's size does not bound the window if the target detects nothing."""
    assert plans(validate(_bridge(use_duplicate_detection=False) | _orders("orders", 10)))[0].window == 5_000
    assert plans(validate(_bridge(window=7_000) | _orders("orders", 0)))[0].window == 7_000


@pytest.mark.parametrize(
    "made",
    [
        _bridge(window=2_001) | _orders("orders", 2_000),
        _bridge(window=2_001) | _orders("ord*", 2_000),
        _connection(window=2_001, addresses=["other"], target="orders") | _orders("orders", 2_000),
    ],
)
def test_window_beyond_the_target(made: dict[str, Any]) -> None:
    """A window larger than the target's memory is refused, because forgotten messages in flight would be accepted twice."""
    found = _fault(made)

    assert "window = 2001 is more than id_cache_size = 2000 of its target address 'orders'" in found
    assert "set window = 2000 or less, or raise id_cache_size" in found
