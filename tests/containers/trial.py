"""The steps of a trial: a load with duplicates, a killed worker, the nightly run, one planted record."""

import json
import urllib.request
from collections import Counter
from typing import Final
from urllib.parse import urlencode

from confluent_kafka import Producer

from app.check.judge import judge
from app.check.topic_reader import read_topic
from tests.containers import traffic
from tests.containers.engine import Engine
from tests.containers.images import RECONCILE
from tests.containers.stack import LIMIT_S, PROMETHEUS, WEB, Stack, get
from tests.containers.steps import expect, step
from tests.support.checkout import ROOT
from tests.support.deployment import expressions, filled
from tests.support.worker import wait_for

BOOTSTRAP: Final = "127.0.0.1:9092"
KILLED: Final = "worker-1"
SURVIVOR: Final = "worker-2"
_LANES: Final = 8
_TARGETS: Final = 4
_BALANCES: Final = (
    "import json, sqlite3; print(json.dumps(dict((account.decode(), messages) for account, messages in "
    "sqlite3.connect('/ringfence/data/once.db').execute('SELECT account, messages FROM balance'))))"
)


def check_monitoring(engine: Engine, image: str) -> None:
    with step("promtool") as done:
        options = [
            "--entrypoint", "promtool", "--workdir", "/etc/prometheus",
            "--volume", f"{ROOT}/ops/prometheus:/etc/prometheus:ro",
        ]  # fmt: skip
        engine.once(image, "check", "config", "prometheus.yml", options=options)
        said = engine.once(image, "check", "rules", "ringfence.rules.yml", options=options)
        engine.once(image, "test", "rules", "ringfence.rules.test.yml", options=options)
        done.note = " ".join(said.split()[-3:])


def start(stack: Stack) -> None:
    with step("compose up"):
        stack.up()
    with step("lanes of both workers") as done:
        wait_for(lambda: _shared(stack), lambda: f"lanes are not shared:\n{_said(stack)}")
        done.note = f"{len(stack.lanes(KILLED))} and {len(stack.lanes(SURVIVOR))}"
    with step("health checks") as done:
        names = (KILLED, SURVIVOR, "consumer", "bridge")
        for name in names:
            stack.await_healthy(name)
        done.note = f"{', '.join(names)} are healthy"
    with step("Prometheus' targets") as done:
        wait_for(lambda: len(_up()) == _TARGETS, lambda: f"only these are up: {sorted(_up())}")
        done.note = f"{', '.join(sorted(_up()))} are up"


def take_over(stack: Stack) -> None:
    """Kill a worker under load: the other takes its lanes, and knows the IDs that the dead one accepted."""
    everything = stack.lanes(KILLED) | stack.lanes(SURVIVOR)
    with step("send, and kill a worker") as done:
        stack.send(traffic.lines(traffic.first()))
        stack.engine("kill", "--signal", "KILL", stack.engine.container(KILLED))
        done.note = f"{len(traffic.first())} messages, {traffic.resends(traffic.first())} of them resends; {KILLED} is killed"
    with step("its lanes") as done:
        wait_for(
            lambda: stack.lanes(SURVIVOR) == everything, lambda: f"{SURVIVOR} has not all:\n{_said(stack)}"
        )
        done.note = f"{SURVIVOR} has all {len(everything)}"
    with step("messages before the kill") as done:
        _await_accepted(traffic.DISTINCT)
        wait_for(lambda: _waiting(stack) == 0, lambda: f"{_waiting(stack)} messages wait")
        done.note = f"{traffic.DISTINCT} accepted"
    with step("send, while it is dead") as done:
        before = _duplicates()
        stack.send(traffic.lines(traffic.second()))
        _await_accepted(2 * traffic.DISTINCT)
        wait_for(lambda: _waiting(stack) == 0, lambda: f"{_waiting(stack)} messages wait")
        counted, sent = _duplicates() - before, traffic.resends(traffic.second(), traffic.first())
        expect(counted == sent, f"{SURVIVOR} has counted {counted} duplicates of {sent}")
        state = stack.engine.state(KILLED)
        expect(not state.running and state.exit_code == 137, f"{KILLED} is not dead: {state}")
        done.note = f"{len(traffic.second())} messages, {counted} of them counted as duplicates by {SURVIVOR}"
    with step("start it again") as done:
        stack.engine("start", stack.engine.container(KILLED))
        wait_for(lambda: _shared(stack), lambda: f"lanes are not shared:\n{_said(stack)}")
        done.note = f"{KILLED} has {len(stack.lanes(KILLED))} lanes again"


def judge_outputs(stack: Stack) -> None:
    """Compare inputs with outputs, record by record, by a program that shares nothing with what it judges."""
    everything = [*traffic.first(), *traffic.second()]
    with step("accepted messages") as done:
        accepted = read_topic(BOOTSTRAP, "orders.accepted")
        [found] = judge({"orders": read_topic(BOOTSTRAP, "orders")}, {"orders": accepted})
        expect(found.exact, f"not exact: {found}")
        numbers = (found.sent, found.distinct, found.accepted)
        wanted = (len(everything), 2 * traffic.DISTINCT, 2 * traffic.DISTINCT)
        expect(numbers == wanted, f"sent, distinct and accepted are {numbers} and not {wanted}")
        done.note = f"{found.accepted} of {found.sent} sent, each once, in order, unchanged"
    with step("consumer") as done:
        wanted_balances = traffic.by_group(everything)
        wait_for(lambda: _balances(stack) == wanted_balances, lambda: f"it has counted {_balances(stack)}")
        done.note = f"{wanted_balances.total()} messages of {len(wanted_balances)} groups handled once"
    with step("bridge") as done:
        values = Counter(item.value for item in accepted)
        wait_for(
            lambda: len(read_topic(BOOTSTRAP, "archive.accepted")) >= len(accepted),
            lambda: (
                f"archive.accepted has {len(read_topic(BOOTSTRAP, 'archive.accepted'))} of {len(accepted)}"
            ),
        )
        bridged = Counter(item.value for item in read_topic(BOOTSTRAP, "archive.accepted"))
        expect(
            bridged == values, f"archive.accepted differs: {bridged - values} more, {values - bridged} less"
        )
        done.note = f"{bridged.total()} messages in archive.accepted, each once"
    with step("queries of the dashboard") as done:
        done.note = _dashboard()


def run_nights(stack: Stack) -> None:
    everything = [*traffic.first(), *traffic.second()]
    with step("nightly run") as done:
        ended = stack.nightly()
        expect(
            ended.code == 0 and "verdict: clean" in ended.output,
            f"it ended with {ended.code}:\n{ended.everything}",
        )
        found = stack.summary(RECONCILE)["addresses"]["orders"]
        counts = {
            name: found[name] for name in ("input", "accepted", "duplicates", "quarantined", "in_flight")
        }
        wanted = {
            "input": len(everything), "accepted": 2 * traffic.DISTINCT, "duplicates": traffic.resends(everything),
            "quarantined": 0, "in_flight": 0,
        }  # fmt: skip
        expect(counts == wanted, f"it counts {counts} and not {wanted}")
        done.note = (
            f"clean: {counts['input']} in, {counts['accepted']} accepted, {counts['duplicates']} duplicates"
        )
    with step("nightly run after a planted output") as done:
        _plant()
        ended = stack.nightly()
        expect(ended.code == 1, f"it ended with {ended.code} and not with 1:\n{ended.everything}")
        anomalies = stack.summary(RECONCILE)["addresses"]["orders"]["anomalies"]
        named = {name: count for name, count in anomalies.items() if count}
        expect(named == {"DOUBLED": 1}, f"it names {named} and not one DOUBLED")
        done.note = "not clean: one DOUBLED, exit code 1"


def stop(stack: Stack) -> None:
    with step("compose stop") as done:
        codes = stack.stop(KILLED, SURVIVOR, "consumer", "bridge")
        expect(set(codes.values()) == {0}, f"exit codes are {codes}")
        done.note = "all ended with exit code 0"


def _shared(stack: Stack) -> bool:
    one, other = stack.lanes(KILLED), stack.lanes(SURVIVOR)
    return bool(one) and bool(other) and not one & other and len(one | other) == _LANES


def _said(stack: Stack) -> str:
    return "\n".join(f"{item}: {json.dumps(stack.health(item))[:2_000]}" for item in (KILLED, SURVIVOR))


def _up() -> set[str]:
    found = get(f"{PROMETHEUS}/api/v1/targets")
    active = found["data"]["activeTargets"] if found else []
    return {item["labels"]["instance"] for item in active if item["health"] == "up"}


def _await_accepted(count: int) -> None:
    def accepted() -> int:
        return len(read_topic(BOOTSTRAP, "orders.accepted"))

    wait_for(lambda: accepted() >= count, lambda: f"{accepted()} of {count} messages are accepted")


def _waiting(stack: Stack) -> int:
    status = json.loads(stack.inside(SURVIVOR, "sh", "-c", "ringfence status --json || true"))
    [orders] = [item for item in status["addresses"] if item["address"] == "orders"]
    return sum(1 if order["lag"] is None else order["lag"] for order in orders["lanes"])


def _duplicates() -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{WEB[SURVIVOR]}/metrics", timeout=10) as answer:
        exposition = answer.read().decode()
    wanted = 'ringfence_messages_total{address="orders",verdict="duplicates"} '
    [count] = [line.removeprefix(wanted) for line in exposition.splitlines() if line.startswith(wanted)]
    return int(float(count))


def _balances(stack: Stack) -> dict[str, int]:
    found: dict[str, int] = json.loads(stack.inside("consumer", "python", "-c", _BALANCES))
    return found


def _dashboard() -> str:
    queries = [
        filled(expression) for expression in expressions() if not expression.startswith("label_values(")
    ]
    answered = 0
    for query in queries:
        found = get(f"{PROMETHEUS}/api/v1/query?{urlencode({'query': query})}")
        expect(bool(found) and found["status"] == "success", f"Prometheus refuses {query}: {found}")
        answered += bool(found["data"]["result"])
    expect(answered > 0, "Prometheus answers no query of the dashboard")
    return f"{answered} of {len(queries)} have an answer"


def _plant() -> None:
    record = read_topic(BOOTSTRAP, "orders.accepted")[0]
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all"})
    producer.produce(
        "orders.accepted", record.value, record.key, record.partition,
        timestamp=record.timestamp, headers=list(record.headers),
    )  # fmt: skip
    left = producer.flush(LIMIT_S)
    expect(left == 0, "Kafka does not take the planted record")
