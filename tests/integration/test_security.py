"""Security of connections: each client of each verb connects as configured, or reports why it does not.

One broker has a listener for each way to connect; Ringfence knows only the secured addresses.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from ringfence_kafka.config.load import load
from tests.support import kafka
from tests.support.brokers.acls import Right
from tests.support.brokers.secured import (
    LONG_AGO,
    PASSWORD,
    PASSWORD_VARIABLE,
    SESSION_MS,
    USER,
    WRONG_PASSWORD,
    Access,
    SecuredBroker,
)
from tests.support.checkout import ROOT
from tests.support.worker import WorkerProcess, run_verb, wait_for

PARTITIONS: Final = 2
LIMIT_S: Final = 120.0
NIGHT_LIMIT_S: Final = 400.0
"""Time limit of a reconciliation run."""
LINES: Final = [{"id": str(index % 5), "group": f"g{index % 5}", "value": f"{index}"} for index in range(8)]
"""Five distinct messages and three resends."""


def _run(
    access: Access, config: Path, *verb: str, stdin: str = "", limit_s: float = LIMIT_S
) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a verb; without one, of the reconciliation run."""
    arguments = [*verb, "--config", str(config)]
    if verb:
        ended = run_verb(
            *arguments, check=False, stdin=stdin, limit_s=limit_s, environment=access.environment
        )
    else:
        ended = subprocess.run(
            [sys.executable, "-m", "reconcile", *arguments],
            cwd=ROOT, env={**os.environ, **access.environment}, check=False, text=True, capture_output=True, timeout=limit_s,
        )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def _jsonl() -> str:
    return "".join(json.dumps(line) + "\n" for line in LINES)


def _settle(secured: SecuredBroker, process: WorkerProcess, app_id: str, topic: str) -> None:
    """Wait until the input is processed; asked through the broker's plaintext listener."""
    ends = kafka.end_offsets(secured.plaintext, topic, PARTITIONS)

    def settled() -> bool:
        done = kafka.committed(secured.plaintext, app_id, topic, PARTITIONS)
        return [max(0, number) for number in done] == ends

    wait_for(settled, lambda: f"{process.health()}\n{process.log()}")


def _work(secured: SecuredBroker, access: Access, config: Path, app_id: str, topic: str) -> WorkerProcess:
    """Run a worker until the input is processed; it ends in order."""
    with WorkerProcess(config, "w", dict(access.environment)) as process:
        process.wait_ready()
        _settle(secured, process, app_id, topic)
        assert process.stop() == 0
    return process


def _accepted(secured: SecuredBroker, name: str) -> list[str]:
    got = kafka.read_all(secured.plaintext, f"{name}.accepted", PARTITIONS)
    return sorted((item.id or b"").decode() for item in got)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("locked", marks=pytest.mark.long),
        pytest.param("plain", marks=pytest.mark.long),
        "scram",
        pytest.param("token", marks=pytest.mark.long),
        pytest.param("issued", marks=pytest.mark.long),
    ],
)
def test_every_verb_gets_in(
    secured: SecuredBroker, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics, check, send, worker and rings work through a secured listener; the password appears nowhere."""
    access: Access = getattr(secured, way)
    name = kafka.unique(f"secured-{way}")
    config = access.configure(tmp_path, f"{name}-app", [{"name": name, "partitions": PARTITIONS}])
    said = [_run(access, config, "topics", "create"), _run(access, config, "topics", "check")]
    said.append(_run(access, config, "send", name, stdin=_jsonl()))
    process = _work(secured, access, config, f"{name}-app", name)
    said.append(_run(access, config, "rings", "show", "--json"))
    document = json.loads(said[-1][1])
    for variable, value in access.environment.items():
        monkeypatch.setenv(variable, value)
    settings = load(config)
    shown = [text for _, *texts in said for text in texts] + [repr(settings), settings.model_dump_json()]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert [code for code, *_ in said] == [0, 0, 0, 0], said
    assert _accepted(secured, name) == ["0", "1", "2", "3", "4"]
    assert sum(item["size"] for item in document["addresses"][name]) == 5
    assert process.log_file in files
    assert [text for text in shown if PASSWORD in text] == []
    assert [file for file in files if PASSWORD.encode() in file.read_bytes()] == []


@pytest.mark.long
def test_sessions_end(secured: SecuredBroker, tmp_path: Path) -> None:
    """Work continues when brokers end their sessions and close connections, and nobody reports the brokers as away.

    Once the password has changed, the error reports it, with the remedy.
    """
    name = kafka.unique("brief")
    config = secured.brief.configure(tmp_path, f"{name}-app", [{"name": name, "partitions": PARTITIONS}])
    assert _run(secured.brief, config, "topics", "create")[0] == 0
    process = WorkerProcess(config, "w", dict(secured.brief.environment))
    sent = 0
    try:
        process.start()
        process.wait_ready()
        end = time.monotonic() + 2.5 * SESSION_MS / 1_000
        while time.monotonic() < end:
            lines = "".join(
                json.dumps({"id": f"{index:04}", "value": "v"}) + "\n" for index in range(sent, sent + 5)
            )
            assert _run(secured.brief, config, "send", name, stdin=lines)[0] == 0
            sent += 5
        _settle(secured, process, f"{name}-app", name)
        log = process.log()
        secured.add_user(USER, password=WRONG_PASSWORD)
        wait_for(lambda: "denies access" in process.log(), process.log)
        secured.add_user(USER)
        wait_for(lambda: "the broker answers again" in process.log(), process.log)
        assert process.stop() == 0
    finally:
        secured.add_user(USER)
        process.destroy()

    assert _accepted(secured, name) == [f"{index:04}" for index in range(sent)]
    assert "KafkaConnectionError: Connection at" in log, "no session ended"
    assert "does not answer" not in log
    assert (
        f"{secured.brief.bootstrap} denies access: it refuses the password of kafka.sasl_username"
        in process.log()
    )


@pytest.mark.long
@pytest.mark.parametrize("way", ["tls", "scram"])
def test_nightly_job_gets_in(secured: SecuredBroker, way: str, tmp_path: Path) -> None:
    """Spark reads through a secured listener, with the rights that docs/security.md lists; the password is nowhere."""
    access: Access = getattr(secured, way)
    name = kafka.unique(f"nightly-{way}")
    config = access.configure(tmp_path, f"{name}-app", [{"name": name, "partitions": PARTITIONS}])
    assert _run(access, config, "topics", "create")[0] == 0
    assert _run(access, config, "send", name, stdin=_jsonl())[0] == 0
    _work(secured, access, config, f"{name}-app", name)
    if way == "scram":
        secured.add_user(f"{name}-night", _rights(name, f"{name}-app")["night"])
        access = access.with_user(f"{name}-night")
        config = access.configure(tmp_path, f"{name}-app", [{"name": name, "partitions": PARTITIONS}])
    with config.open("a") as file:
        file.write(f'[reconcile]\nstate_dir = "{tmp_path}/state"\n')
    code, out, err = _run(
        access, config, "reconcile", "--json", "--out", str(tmp_path / "out"), limit_s=NIGHT_LIMIT_S
    )

    assert code == 0, err
    assert f"counting: {name} 8 messages, 5 accepted, 0 quarantined, " in err
    document = json.loads(out)
    assert (document["verdict"], document["addresses"][name]["accepted"]) == ("clean", 5)
    assert PASSWORD not in out + err
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ] == []


REFUSED: Final[dict[str, tuple[Callable[[SecuredBroker], Access], str]]] = {
    "no client certificate": (
        lambda broker: broker.tls.but("ssl_certfile", "ssl_keyfile"),
        "it asks for a certificate",
    ),
    "authority unknown": (
        lambda broker: broker.tls.but(ssl_cafile=str(broker.certificates.stranger())),
        "its certificate is not trusted",
    ),
    "client certificate expired": (
        lambda broker: broker.expired,
        f"client-expired.pem', which expired on {LONG_AGO:%Y-%m-%d %H:%M} UTC (",
    ),
    "another host name": (
        lambda broker: dataclasses.replace(
            broker.tls, bootstrap=broker.tls.bootstrap.replace("127.0.0.1", "localhost")
        ),
        "its certificate is for another name (Hostname mismatch, certificate is not valid for 'localhost')",
    ),
    "wrong password of PLAIN": (
        lambda broker: broker.plain.with_password(WRONG_PASSWORD),
        f"'ringfence-user' (PLAIN): fix the name, or the password in ${PASSWORD_VARIABLE}",
    ),
    "wrong password of SCRAM": (
        lambda broker: broker.scram.with_password(WRONG_PASSWORD),
        "it refuses the password of kafka.sasl_username = 'ringfence-user' (SCRAM-SHA-512)",
    ),
    "a token that is not for it": (
        lambda broker: dataclasses.replace(broker.issued, bootstrap=broker.token.bootstrap),
        "/token: see that its issuer, audience and scope are those that the listener asks for",
    ),
    "mechanism not enabled": (
        lambda broker: broker.scram.but(sasl_mechanism="SCRAM-SHA-256"),
        "it does not accept kafka.sasl_mechanism = 'SCRAM-SHA-256'",
    ),
    "no login where one is due": (
        lambda broker: Access(broker.scram.bootstrap, {}, {}),
        "it may want a login, and kafka.security_protocol = 'PLAINTEXT' has none: set 'SASL_PLAINTEXT' and sasl_mechanism",
    ),
    "no TLS where it is due": (
        lambda broker: Access(broker.tls.bootstrap, {}, {}),
        "that port speaks TLS, and kafka.security_protocol = 'PLAINTEXT' does not: set 'SSL'",
    ),
    "TLS where none is": (
        lambda broker: Access(broker.plaintext, broker.tls.options, {}),
        "that port does not speak TLS, and kafka.security_protocol = 'SSL' does: name the port of a listener that does",
    ),
    "a login where none is taken": (
        lambda broker: Access(broker.plaintext, broker.scram.options, broker.scram.environment),
        (
            "it accepts no login on that port: kafka.security_protocol = 'SASL_PLAINTEXT' is for another "
            "listener"
        ),
    ),
}
"""Name → a configuration that is refused, and its expected reason."""


QUICK: Final = ("no client certificate", "wrong password of SCRAM", "no login where one is due")


VERBS: Final[list[tuple[str, ...]]] = [
    ("topics", "create"),
    ("topics", "check"),
    ("send", "refused"),
    ("rings", "show"),
    ("worker",),
    ("audit", "refused"),
    (),  # the reconciliation run, as a program of its own
]


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in REFUSED]
)
def test_refused(secured: SecuredBroker, case: str, tmp_path: Path) -> None:
    """A refused verb ends with 2 and one error that names broker, reason and remedy, without trace or secret.

    All verbs explain the first case. The other cases need one verb, because all verbs share the explanation.
    """
    make, reason = REFUSED[case]
    access = make(secured)
    config = access.configure(tmp_path, "refused", [{"name": "refused"}])
    verbs = VERBS if case == next(iter(REFUSED)) else [("topics", "check")]
    ended = [_run(access, config, *verb, stdin=_jsonl()) for verb in verbs]

    for verb, (code, out, err) in zip(verbs, ended, strict=True):
        error = err.strip().splitlines()[-1]
        assert (verb, code) == (verb, 2), err
        name = "ringfence" if verb else "reconcile"
        assert error.startswith(f"{name}: the broker at {access.bootstrap} denies access: "), verb
        assert reason in error, verb
        assert "Traceback" not in err
        for password in (PASSWORD, WRONG_PASSWORD):
            assert password not in out + err


@pytest.mark.parametrize(
    ("kind", "operation", "said"),
    [
        (
            ResourceType.GROUP,
            AclOperation.DESCRIBE,
            "group {app}: this user may not see it: allow Describe on it",
        ),
        (
            ResourceType.TOPIC,
            AclOperation.READ,
            (
                "{name}, {app}-{name}-forward, {name}.accepted, {name}.quarantine, {app}-journal: this user may not read this: "
                "allow Read"
            ),
        ),
    ],
)
def test_a_right_that_the_nightly_job_lacks(
    secured: SecuredBroker, tmp_path: Path, kind: ResourceType, operation: AclOperation, said: str
) -> None:
    """The job names a missing right and its resource before Spark is started."""
    name = kafka.unique("nightly-lacking")
    app_id = f"{name}-app"
    rights = [right for right in _rights(name, app_id)["night"] if (right[0], right[3]) != (kind, operation)]
    rights += [
        (right[0], right[1], right[2], AclOperation.DESCRIBE)
        for right in _rights(name, app_id)["night"]
        if right[0] == ResourceType.TOPIC
    ]
    secured.add_user(name, rights)
    config = secured.scram.configure(tmp_path, app_id, [{"name": name, "partitions": 1}])
    assert _run(secured.scram, config, "topics", "create")[0] == 0
    access = secured.scram.with_user(name)
    code, out, err = _run(access, access.configure(tmp_path, app_id, [{"name": name}]), "reconcile")

    assert (code, out) == (2, "")
    *_, last = err.splitlines()  # lines before it tell that the result of the run is not known elsewhere
    assert last.startswith(f"ringfence: {said.format(name=name, app=app_id)}"), err


def _rights(name: str, app_id: str) -> dict[str, list[Right]]:
    """Rights that docs/security.md lists, by the part that needs them."""
    topic, exactly, prefix = ResourceType.TOPIC, ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    topics = [(topic, name, exactly), (topic, f"{name}.", prefix), (topic, f"{app_id}-", prefix)]
    see = [(*topic, AclOperation.DESCRIBE_CONFIGS) for topic in topics]
    make = [(*topic, right) for topic in topics for right in (AclOperation.CREATE, AclOperation.DESCRIBE)]
    return {
        "creator": [*see, *make],
        "sender": [(topic, name, exactly, AclOperation.WRITE)],
        "worker": [
            *see,
            (topic, name, exactly, AclOperation.READ),
            (topic, f"{name}.", prefix, AclOperation.WRITE),
            (topic, f"{app_id}-", prefix, AclOperation.READ),
            (topic, f"{app_id}-", prefix, AclOperation.WRITE),
            (ResourceType.GROUP, app_id, exactly, AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, f"{app_id}-", prefix, AclOperation.WRITE),
        ],
        "night": [
            *((*topic, AclOperation.READ) for topic in topics),
            (ResourceType.GROUP, app_id, exactly, AclOperation.DESCRIBE),
            (ResourceType.GROUP, f"{app_id}-reconcile", exactly, AclOperation.READ),
        ],
        "viewer": [(topic, f"{app_id}-", prefix, AclOperation.READ)],
    }


def test_documented_rights_are_enough(secured: SecuredBroker, tmp_path: Path) -> None:
    """Each part does its work with the rights that docs/security.md lists for it, and no others."""
    name = kafka.unique("rights")
    app_id = f"{name}-app"
    configs: dict[str, tuple[Access, Path]] = {}
    for who, rights in _rights(name, app_id).items():
        secured.add_user(f"{name}-{who}", rights)
        access = secured.scram.with_user(f"{name}-{who}")
        folder = tmp_path / who
        folder.mkdir()
        addresses = [{"name": name, "partitions": PARTITIONS, "duplicates": "divert"}]
        configs[who] = access, access.configure(folder, app_id, addresses)
    said = [_run(*configs["creator"], "topics", "create"), _run(*configs["creator"], "topics", "check")]
    said.append(_run(*configs["sender"], "send", name, stdin=_jsonl()))
    _work(secured, *configs["worker"], app_id, name)
    said.append(_run(*configs["viewer"], "rings", "find", name, "3"))
    said.append(_run(*configs["worker"], "rings", "clear", name))

    assert [code for code, *_ in said] == [0, 0, 0, 0, 0], said
    assert _accepted(secured, name) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("kind", "operation", "lacking"),
    [
        (ResourceType.GROUP, AclOperation.READ, ["group {app}: {why}: allow Read on it"]),
        (
            ResourceType.TOPIC,
            AclOperation.READ,
            [
                "topic {name}: {why}: allow Read on it",
                "topic {app}-{name}-changelog: {why}: allow Read on it",
                "topic {app}-{name}-forward: {why}: allow Read on it",
            ],
        ),
    ],
)
def test_a_missing_right_is_named(
    secured: SecuredBroker, tmp_path: Path, kind: ResourceType, operation: AclOperation, lacking: list[str]
) -> None:
    """A worker that lacks a right on its group or a topic ends before it starts, and names the right and its resource."""
    name = kafka.unique("lacking")
    app_id = f"{name}-app"
    rights = [right for right in _rights(name, app_id)["worker"] if (right[0], right[3]) != (kind, operation)]
    if kind == ResourceType.TOPIC:  # seen, as far as the topics' other rights go
        rights.append((kind, name, ResourcePatternType.LITERAL, AclOperation.DESCRIBE))
    secured.add_user(name, rights)
    access = secured.scram.with_user(name)
    config = access.configure(tmp_path, app_id, [{"name": name, "partitions": 1}])
    owner = tmp_path / "owner"
    owner.mkdir()
    made = secured.scram.configure(owner, app_id, [{"name": name, "partitions": 1}])
    assert _run(secured.scram, made, "topics", "create")[0] == 0
    code, _, err = _run(access, config, "worker", "--web-port", "0")
    why = "this user may not use it as a worker does"

    assert code == 1
    assert err.removeprefix("ringfence: ").splitlines() == [
        item.format(name=name, app=app_id, why=why) for item in lacking
    ]
