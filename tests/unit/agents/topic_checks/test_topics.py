import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, TransactionalIdAuthorizationFailed

from agents.topic_checks import topics as checks
from agents.topic_checks.changelog import meta_faults
from agents.topic_checks.topics import count_faults, missing_topics, notes, topic_faults
from ringfence_kafka.admin.topics import Described, TopicDescription, span
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from tables.codec import Meta

APP = "rf"
COMPACT, DELETE = {"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}


def _address() -> AddressSettings:
    return validate({"addresses": [{"name": "orders"}]}).addresses[0]


def described(**counts: int) -> dict[str, TopicDescription]:
    """Describe the topics of ``orders``, with four partitions except those given; 0 = it does not exist."""
    names = {"input": "orders", "accepted": "orders.accepted", "quarantine": "orders.quarantine"}
    names |= {role: f"rf-orders-{role}" for role in ("changelog", "forward")}
    return {
        name: TopicDescription(name, counts.get(role, 4), COMPACT if role == "changelog" else DELETE)
        for role, name in names.items()
        if counts.get(role, 4)
    }


def recorded(lanes: int = 0, **counts: int) -> Meta:
    """Return the meta record of a lane that began with these counts of partitions."""
    named = {name.replace("_", "."): count for name, count in counts.items()}
    return Meta(9, 1, 0, {}, named, "0f", app=APP, address="orders", lanes=lanes)


def test_grown_input_is_one_fault() -> None:
    """A grown input is one problem: changelog and forward topic only show the old count, or the new one if its growth did not end."""
    (fault,) = topic_faults(APP, _address(), described(input=6))

    assert fault == (
        "orders has 6 partitions, it had 4 when its lanes began, as rf-orders-changelog and "
        "rf-orders-forward still have: groups and IDs have moved to other partitions. Stop the workers: "
        "'ringfence topics grow orders --partitions 8' continues with them. Or once nothing in it is unread, because that is "
        "lost, delete it and create it again with 4 partitions, or start again under another app.id, which accepts everything that is still in "
        "the input once more; only if nothing was processed yet, delete rf-orders-changelog and "
        "rf-orders-forward and run 'ringfence topics create'. If lanes was set before, run 'ringfence "
        "rings regroup orders --lanes 0'"
    )
    (unfinished,) = topic_faults(APP, _address(), described(changelog=8, forward=8))
    assert "grow orders --partitions 8' finishes a growth to 8, if one was begun" in unfinished
    assert "because that is lost, delete it and create it again with 8 partitions" in unfinished


@pytest.mark.parametrize(
    ("counts", "topics"),
    [
        ({"changelog": 6}, []),  # partitions without a lane do no harm
        ({"changelog": 3}, ["orders"]),
        ({"forward": 6}, ["rf-orders-forward"]),
        ({"changelog": 3, "forward": 6}, ["orders", "rf-orders-forward"]),
        ({"input": 2}, ["orders"]),
    ],
)
def test_counts_that_do_not_fit(counts: dict[str, int], topics: list[str]) -> None:
    assert [fault.split()[0] for fault in topic_faults(APP, _address(), described(**counts))] == topics


def test_counts_with_which_lanes_began() -> None:
    """Input and accepted topic keep the counts with which their lanes began; several lanes report a difference once."""
    now = {"orders": 4, "orders.accepted": 6}
    metas = [recorded(orders=4, orders_accepted=4), recorded(orders=4, orders_accepted=4), recorded(other=1)]

    (fault,) = count_faults(_address(), now, metas)

    assert fault.startswith("orders.accepted has 6 partitions, it had 4 when its lanes began: ")
    assert "only if nothing was processed" not in fault
    assert count_faults(_address(), now, [recorded(orders=4, orders_accepted=6)]) == []
    assert count_faults(_address(), {}, metas) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TopicAuthorizationFailedError("orders.accepted"), "topic orders.accepted: {why}: allow Write on it"),
        (TopicAuthorizationFailedError({"orders"}), "topic orders: {why}: allow Read on it"),
        (
            TopicAuthorizationFailedError({"rf-orders-changelog", "elsewhere"}),
            "topic elsewhere: {why}: allow Write on it; topic rf-orders-changelog: {why}: allow Read and Write on it",
        ),
        (TransactionalIdAuthorizationFailed("rf-0"), "transactional ID rf-0: {why}: allow Write on it"),
    ],
)
def test_denied(error: KafkaError, said: str) -> None:
    """A lane reports a revoked permission in the same words as a worker reports a missing one at its start."""
    assert checks.denied(APP, _address(), error) == said.format(why=REFUSED)
    assert checks.denied(APP, _address(), KafkaError("x")) is None


@pytest.mark.parametrize(
    ("ms", "said"),
    [(500, "0.5 s"), (60_000, "60 s"), (3_600_000, "60 minutes"), (86_400_000, "24 hours"), (604_800_000, "7 days"),
     (float("inf"), "ever")],
)  # fmt: skip
def test_span(ms: float, said: str) -> None:
    """A time span is shown in the largest unit of which there are two."""
    assert span(ms) == said


@pytest.mark.parametrize("name", ["rf-orders-changelog", "orders.quarantine"])
def test_no_room(name: str) -> None:
    """A changelog or a quarantine topic that takes next to nothing is named before anything is to be written there."""
    topics = described()
    config = dict(topics[name].config or {}) | {"max.message.bytes": "2047"}
    (fault,) = topic_faults(APP, _address(), topics | {name: TopicDescription(name, 4, config)})

    assert fault.startswith(f"{name} (")
    assert "has max.message.bytes=2047" in fault
    assert fault.endswith(f"--topic {name} --add-config max.message.bytes=1048588")


REFUSED = "this user may not use it as a worker does"
PREFIX = "transactions of orders have parts for payments: "


def _with_target(config: dict[str, str] | None = None, partitions: int = 4) -> dict[str, TopicDescription]:
    target = TopicDescription("payments.accepted", partitions, {"cleanup.policy": "delete"} | (config or {}))
    return described() | {target.name: target}


def _pair() -> tuple[AddressSettings, AddressSettings]:
    orders, payments = validate(
        {"addresses": [{"name": "orders", "transaction_addresses": ["payments"]}, {"name": "payments"}]}
    ).addresses
    return orders, payments


def test_missing_target() -> None:
    """A missing target topic is named with the way out, whether it does not exist or may not be seen."""
    orders, payments = _pair()

    (fault,) = missing_topics(APP, orders, Described(described(), frozenset()), [payments])
    (unseen,) = missing_topics(
        APP, orders, Described(described(), frozenset({"payments.accepted"})), [payments]
    )

    assert fault.startswith(f"{PREFIX}payments.accepted (accepted topic of payments) does not exist")
    assert fault.endswith("run 'ringfence topics create'")
    assert unseen == f"{PREFIX}topic payments.accepted: {REFUSED}: allow Write on it"
    assert missing_topics(APP, orders, Described(_with_target(), frozenset()), [payments]) == []


AFTER = "message.timestamp.after.max.ms"


@pytest.mark.parametrize(
    ("config", "fault", "way_out"),
    [
        (
            {"cleanup.policy": "compact"},
            " (accepted topic of payments) has cleanup.policy=compact",
            "--topic payments.accepted --add-config cleanup.policy=delete",
        ),
        (
            {AFTER: "5"},
            f" (accepted topic of payments) has {AFTER}=5, orders has 7, ",
            f"--topic payments.accepted --add-config {AFTER}=7",
        ),
        (None, ": the cluster does not report its configuration", "user DescribeConfigs on the topic"),
    ],
)
def test_target_that_does_not_do(config: dict[str, str] | None, fault: str, way_out: str) -> None:
    """A target must meet the requirements of an accepted topic, and take all timestamps: a refused part would stop the lane."""
    orders, payments = _pair()
    topics = _with_target(config)
    topics["orders"] = TopicDescription("orders", 4, {AFTER: "7"})
    if config is None:
        topics["payments.accepted"] = TopicDescription("payments.accepted", 4, None)
    (found,) = topic_faults(APP, orders, topics, [payments])

    assert found.startswith(f"{PREFIX}payments.accepted{fault}")
    assert found.endswith(way_out)
    assert topic_faults(APP, orders, _with_target(), [payments]) == []


def test_target_with_other_partitions() -> None:
    """A target with another partition count is refused at the opening, by the watch and by the check."""
    orders, payments = _pair()
    topics, meta = _with_target(partitions=6), recorded(orders=4, payments_accepted=4)
    counts = {name: topic.partitions for name, topic in topics.items()}
    (fault,) = count_faults(orders, counts, [meta], [payments])

    assert fault.startswith("payments.accepted has 6 partitions, it had 4 when its lanes began: ")
    assert meta_faults(APP, orders, {("rf-orders-changelog", 0): meta}, topics, [payments]) == [fault]
    assert count_faults(orders, counts, [meta]) == []


def test_notes_on_targets() -> None:
    orders, payments = _pair()
    topics = _with_target({"retention.ms": "60000", "max.message.bytes": "500"})
    config = {"retention.ms": "86400000", "max.message.bytes": "1000"}
    topics["orders"] = TopicDescription("orders", 4, config)
    topics["orders.accepted"] = TopicDescription("orders.accepted", 4, config)
    short, small = notes(APP, orders, topics, [payments])

    assert short.startswith(f"{PREFIX}payments.accepted (accepted topic of payments) keeps messages for 60 s")
    assert small.startswith(
        f"{PREFIX}payments.accepted (accepted topic of payments) has max.message.bytes=500, orders has 1000: "
    )
    assert "larger parts go to quarantine, each with its whole transaction: " in small
    assert notes(APP, orders, topics) == []


LARGE, SMALL = {"max.message.bytes": "2000"}, {"max.message.bytes": "1000"}
BY_BROKER = {"message.timestamp.type": "LogAppendTime"}
LESS = "has max.message.bytes=1000, orders has 2000: larger "
REPLACED = "has message.timestamp.type=LogAppendTime: the broker replaces the timestamps of messages"


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("rf-orders-forward", SMALL, f"{LESS}messages outside their home partition go to quarantine"),
        ("orders.quarantine", SMALL, f"{LESS}messages leave only size and digest there"),
        ("orders.duplicates", SMALL, f"{LESS}duplicates go to quarantine"),
        *((f"orders.{role}", BY_BROKER, REPLACED) for role in ("accepted", "quarantine", "duplicates")),
    ],
)
def test_notes_on_outputs(name: str, config: dict[str, str], said: str) -> None:
    """An output with a smaller limit than the input causes a note, and so does one whose broker replaces timestamps."""
    [orders] = validate({"addresses": [{"name": "orders", "duplicates": "divert"}]}).addresses
    topics = {topic: TopicDescription(topic, 4, LARGE) for topic in orders.topics(APP).values()}
    topics["orders"] = TopicDescription("orders", 4, LARGE | BY_BROKER)
    assert notes(APP, orders, topics) == []
    topics[name] = TopicDescription(name, 4, LARGE | config)
    [note] = notes(APP, orders, topics)

    assert note.startswith(f"{name} (")
    assert said in note
    if config is BY_BROKER:
        assert note.endswith(f"--topic {name} --add-config message.timestamp.type=CreateTime")


BEFORE = "message.timestamp.before.max.ms"


@pytest.mark.parametrize(
    ("taken", "told"),
    [("7200000", True), ("93599999", True), ("93600000", False), (str(2**63 - 1), False), ("7199999", False)],
)
def test_what_waits_grows_older(taken: str, told: bool) -> None:
    """An output takes what is as old as the input takes, and not what has waited there for a day: a note, as long as nothing has."""
    config = {"retention.ms": "86400000", "max.message.bytes": "2000000"}
    existing = {
        "orders": TopicDescription("orders", 4, {BEFORE: "7200000", "retention.ms": "86400000"}),
        "orders.accepted": TopicDescription("orders.accepted", 1, config | {BEFORE: taken}),
    }

    found = notes(APP, _address(), existing)

    assert bool(found) is told
    if told:
        (note,) = found
        assert note.startswith(f"orders.accepted (accepted topic of orders) has {BEFORE}={taken}, from when")
        assert "orders has 7200000 and keeps messages for 24 hours" in note
        assert note.endswith(f"--topic orders.accepted --add-config {BEFORE}={2**63 - 1}")


def test_an_input_that_keeps_messages_for_a_minute() -> None:
    """An input that keeps messages for a minute causes a note with the command, because workers that restart would lose some."""
    config = {"retention.ms": "60000"}
    topics = described() | {name: TopicDescription(name, 4, config) for name in ("orders", "orders.accepted")}
    (note,) = [note for note in notes(APP, _address(), topics) if note.startswith("orders (input topic")]

    assert note == (
        "orders (input topic of orders) keeps messages for 60 s: what no worker has processed by then is lost, also while workers restart: "
        "kafka-configs.sh --bootstrap-server … --alter --topic orders --add-config retention.ms=86400000, or longer than your longest outage"
    )
