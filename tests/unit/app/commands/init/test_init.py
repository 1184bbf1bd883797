"""``ringfence init``: a new file passes the check, and what it imports means the same."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.config import schema
from ringfence_kafka.config.load import load
from tests.support.terminal import entered

HERE = Path(__file__).parent
FILES = [HERE / "broker.xml", HERE / "hornetq-configuration.xml"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _imported(file: Path) -> dict[str, Any]:
    assert entered("init", "--from", str(file)) == 0
    return tomllib.loads(Path("ringfence.toml").read_text("utf-8"))


def _refused(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error for a file with this text; nothing is written."""
    Path("broker.xml").write_text(text, "utf-8")
    assert entered("init", "--from", "broker.xml") == 2
    assert not Path("ringfence.toml").exists()
    return capsys.readouterr().err


def test_a_new_file(capsys: pytest.CaptureFixture[str]) -> None:
    """It has an address for each topic, the cluster, comments, and a schema beside it; it passes the check.

    With - it goes to standard output, and its first line names the schema of the installation. A reader may remove
    each # before a key, and nothing changes.
    """
    assert entered("init", "orders", "--output", "-") == 0
    printed = capsys.readouterr().out
    place = printed.splitlines()[0].removeprefix("#:schema file://")
    assert json.loads(Path(place).read_text("utf-8")) == schema.document()
    assert tomllib.loads(printed)["addresses"] == [{"name": "orders"}]
    assert list(Path().iterdir()) == []

    assert entered("init", "orders", "payments", "orders", "--bootstrap-servers", "k:9092") == 0
    said = capsys.readouterr()
    assert said.out == "written: ringfence.toml (orders, payments) and ringfence.schema.json\n"
    assert said.err == "next: ringfence config check --config ringfence.toml\n"
    text = Path("ringfence.toml").read_text("utf-8")
    assert text.startswith("#:schema ./ringfence.schema.json\n")
    assert 'Choices: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.\n# security_protocol = "PLAINTEXT"\n' in text
    settings = load(Path("ringfence.toml"), {})
    assert [address.name for address in settings.addresses] == ["orders", "payments"]
    assert settings.kafka.bootstrap_servers == "k:9092"
    lines = [
        line.removeprefix("# ") if " = " in line and "`" not in line and ";" not in line else line
        for line in text.splitlines()
    ]
    Path("open.toml").write_text("\n".join(lines), "utf-8")
    assert len(tomllib.loads("\n".join(lines))["address_defaults"]) > 5
    assert load(Path("open.toml"), {}) == settings
    assert entered("config", "check", "--config", "ringfence.toml") == 0


def test_no_file_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that exists stays; another one called as the schema stays too, and no configuration is written.

    An older schema is renewed.
    """
    config, beside = Path("ringfence.toml"), Path("ringfence.schema.json")
    config.write_text("mine")
    assert entered("init", "orders") == 2
    said = "ringfence.toml: exists and is not changed: name another file with --output"
    assert said in capsys.readouterr().err
    assert config.read_text() == "mine"
    for other in ("{}", "mine", "[]"):
        beside.write_text(other)
        assert entered("init", "orders", "--output", "other.toml") == 2
        assert "choose another folder with --output" in capsys.readouterr().err
        assert beside.read_text() == other
        assert not Path("other.toml").exists()
    beside.write_text(json.dumps({"title": schema.document()["title"]}))
    assert entered("init", "orders", "--output", "other.toml") == 0
    assert json.loads(beside.read_text()) == schema.document()


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        ([], "name a topic, or a file with --from"),
        (["or ders"], "addresses[or ders].name = 'or ders': use letters, digits, dots, underscores and hyphens"),
        (["orders", "--bootstrap-servers", "k"], "'k' is not host:port"),
        (["orders", "--output", "no/where.toml"], "no/where.toml: No such file or directory: name a place"),
        (["--from", "none.xml"], "none.xml: No such file or directory: name a readable broker.xml"),
    ):  # fmt: skip
        assert entered("init", *arguments) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_imported_file_passes_the_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It passes, no password is in it or on the terminal, and both have the same list of what has no counterpart."""
    _imported(file)
    said = capsys.readouterr().out
    text = Path("ringfence.toml").read_text("utf-8")
    listed = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert [f"# - {line}" for line in listed] == text.partition("# Without a counterpart:\n")[2].splitlines()
    assert "geheim" not in said + text
    assert entered("config", "check", "--config", "ringfence.toml") == 0


def test_artemis() -> None:
    """Sizes are those that Artemis has for each address, by its own wildcards and their order."""
    data = _imported(FILES[0])
    settings = load(Path("ringfence.toml"), {})
    text = Path("ringfence.toml").read_text("utf-8")

    assert {address.name: address.id_cache_size for address in settings.addresses} == {
        "orders": 100_000,
        "orders.eu": 70_000,
        "orders.eu.berlin": 100_000,
        "ledger": 5_000,
        "archive": 5_000,
    }
    assert {(address.lanes, address.persist_id_cache) for address in settings.addresses} == {(1, False)}
    assert data["addresses"][-1] == {"name": "orders.*", "id_cache_size": 70_000}
    assert (
        "# ringfence consume orders.eu … --max-attempts 3 --retry-delay 5 --retry-multiplier 2 --retry-max 60 "
        '--retry-jitter 0\n[[addresses]]\nname = "orders.eu"\n'
    ) in text
    assert "# Each queue there is a consumer group here: billing, stock\n" in text
    assert "max-delivery-attempts = -1: each message has a last attempt" in text

    # A bridge keeps its filter; one whose filter or target has no form here stands behind #, with the reason.
    hosts = "paris-1.example:9092,[::1]:9092"
    [bridge], [connection] = data["bridges"], data["cluster_connections"]
    assert bridge == {
        "name": "to-paris",
        "source_topic": "orders.eu.accepted",
        "target_address": "orders.paris",
        "use_duplicate_detection": False,
        "filter_header": "region",
        "filter_values": ["eu", "it's"],
        "target": {"bootstrap_servers": hosts},
    }
    invalid = (
        "# not valid: bridges[nowhere].target_address = 'a/b': use letters, digits, dots, underscores and"
    )
    for part in ("# its filter is not of the form", '# name = "priced"', invalid):
        assert part in text
    # A cluster connection that shares messages out becomes a strict one; the own member is [kafka].
    members = [{"name": "berlin-core"}, {"name": "paris", "bootstrap_servers": hosts}]
    strict = {"load_balancing": "strict", "addresses": ["orders", "orders.*"], "members": members}
    assert connection == {"name": "eu", "this": "berlin-core", **strict}


def test_hornetq() -> None:
    """Its default size is 2,000, its placeholders have defaults, and an address of dead letters is none."""
    data = _imported(FILES[1])
    assert data["address_defaults"] == {"id_cache_size": 2_000, "lanes": 1}
    assert [entry["name"] for entry in data["addresses"]] == ["jms.queue.from", "jms.queue.rates"]
    assert data["bridges"][0]["target"] == {"bootstrap_servers": "two.example:9092"}
    assert data["bridges"][0]["filter_values"] == ["order"]
    [connection] = data["cluster_connections"]
    assert (connection["name"], connection["addresses"]) == ("my-cluster", ["jms*"])
    assert '# name = "found"' in Path("ringfence.toml").read_text("utf-8")


def test_what_is_no_broker_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A declaration of entities is refused before any of them is read, be it a file or a bomb."""
    for text, fault in (
        ("<configuration>", "not XML: no element found"),
        ("<configuration>&x;</configuration>", "not XML: undefined entity"),
        ("<broker/>", "begins with <broker>, not with <configuration>"),
    ):
        assert fault in _refused(text, capsys)
    secret = tmp_path / "secret"
    secret.write_text("geheim")
    file, text, url = f'x SYSTEM "{secret.as_uri()}"', 'x "geheim"', '% x SYSTEM "http://h/x"'
    for entity in (file, text, url):
        document = f"<!DOCTYPE configuration [<!ENTITY {entity}>]><configuration>&x;</configuration>"
        said = _refused(document, capsys)
        assert "has a document type declaration, which may read other files" in said
        assert "geheim" not in said


@pytest.mark.parametrize("size", ["-1", "many", "2147483648"])
def test_an_impossible_size(size: str) -> None:
    """A size that no ring can have is listed, and the default holds."""
    file = Path("broker.xml")
    file.write_text(f"<configuration><core><id-cache-size>{size}</id-cache-size></core></configuration>")
    assert "id_cache_size" not in _imported(file)["address_defaults"]
    listed = f"# - id-cache-size = '{size}': it is not 0 to 2,147,483,647"
    assert listed in Path("ringfence.toml").read_text("utf-8")


def test_each_setting_is_imported_or_listed() -> None:
    """A delay without a limit of attempts is imported. Impossible values and settings without an effect are listed."""
    settings = (
        ("#", "max-delivery-attempts", -1),
        ("#", "redelivery-delay", 5000),
        ("a", "max-delivery-attempts", 0),
        ("a", "redelivery-multiplier", 0.5),
        ("b", "redelivery-delay", 0),
        ("b", "redelivery-multiplier", 2),
        ("x.#", "max-redelivery-delay", 7),
    )
    elements = (
        f"<address-setting match='{match}'><{key}>{value}</{key}></address-setting>"
        for match, key, value in settings
    )
    Path("broker.xml").write_text(
        "<configuration><core><persist-id-cache>maybe</persist-id-cache><addresses><address name='c'/></addresses>"
        f"<address-settings>{''.join(elements)}</address-settings></core></configuration>"
    )
    _imported(Path("broker.xml"))
    text = Path("ringfence.toml").read_text("utf-8")

    for part in (
        "# ringfence consume c … --retry-delay 5 --retry-multiplier 1 --retry-jitter 0\n",
        "# - max-delivery-attempts = -1, max-delivery-attempts = 0: ",
        "# - retries of a: retry_multiplier = 0.5: ",
        "# - redelivery-multiplier (b): ",
        "# - max-redelivery-delay (x.#): ",
        "# - persist-id-cache = 'maybe': ",
    ):
        assert part in text
