"""The page on transactions: its test vector, the programs that write it, and what it quotes."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.decision import envelope as worker
from agents.decision.envelope_parts import Units
from app.commands.send.json_lines import TransactionLine, parse
from ringfence_client import Part, envelope
from ringfence_kafka.config.load import validate
from tests.support.checkout import ROOT
from tests.support.pages import transactions
from tests.support.pages.transactions import HEADERS, KEY, Sent

STAND_INS = ROOT / "tests" / "support" / "stand_ins"
EXPECTED = Sent("transfers", KEY, transactions.vector(), HEADERS)


def ran(command: list[str], folder: Path, **environment: str) -> Sent:
    """Return the message that a program hands to the stand-in for its Kafka client."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    headers = [(name, value) for name, value in found["headers"]]
    return Sent(found["topic"], found["key"], found["value"], headers)


def test_the_vector_is_ours() -> None:
    """The encoder writes the page's vector byte for byte, with the stated size and SHA-256, and the decoder reads it."""
    credit = Part(b"\x00\x01\xff", key="acct-2", address="payments", headers=[("type", "credit")])
    made = envelope([Part('{"debit":"10 €"}', key="acct-1"), credit], "pay-4711")

    assert made.value == transactions.vector().encode()
    assert made.headers == [(name, value.encode()) for name, value in HEADERS]
    said = re.search(r"It is UTF-8, (\d+) bytes, SHA-256\s+`([0-9a-f]+)`", transactions.TEXT)
    assert said is not None
    assert said.groups() == (str(len(made.value)), hashlib.sha256(made.value).hexdigest())
    assert worker.decode(b"json/1", made.value) == [
        worker.Part(None, b"acct-1", '{"debit":"10 €"}'.encode(), ()),
        worker.Part("payments", b"acct-2", b"\x00\x01\xff", (("type", b"credit"),)),
    ]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_program(tmp_path: Path) -> None:
    library = tmp_path / "node_modules" / "kafkajs"
    library.mkdir(parents=True)
    shutil.copy(STAND_INS / "kafkajs.js", library / "index.js")
    (tmp_path / "transfer.js").write_text(transactions.program("javascript"), "utf-8")

    assert ran(["node", "transfer.js"], tmp_path) == EXPECTED


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go_program(tmp_path: Path) -> None:
    name = "github.com/twmb/franz-go"
    library = tmp_path / "franz-go" / "pkg" / "kgo"
    library.mkdir(parents=True)
    shutil.copy(STAND_INS / "kgo.go", library / "kgo.go")
    (tmp_path / "franz-go" / "go.mod").write_text(f"module {name}\n\ngo 1.18\n")
    required = f"require {name} v1.0.0\n\nreplace {name} => ./franz-go\n"
    (tmp_path / "go.mod").write_text(f"module transfer\n\ngo 1.18\n\n{required}")
    (tmp_path / "transfer.go").write_text(transactions.program("go"), "utf-8")
    alone = {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=mod"}

    assert ran(["go", "run", "."], tmp_path, **alone) == EXPECTED


def test_dotnet_program() -> None:
    """Read, not run: the literals of its parts, as .NET writes them, are the vector's, and so are key, headers and topic."""
    program = transactions.program("csharp")
    parts = program.partition("object[] parts = ")[2].partition("];\n")[0] + "]"
    for written, instead in (
        (r"//.*", ""),
        (r"new\[\] \{ (new \{[^}]*\}) \}", r"[\1]"),
        (r"\bnew \{", "{"),
        (r"\b(\w+) = ", r'"\1": '),
        (r",\s*([\]}])", r"\1"),
        (r"new byte\[\] \{ ([\d, ]+) \}", lambda found: json.dumps(base64.b64encode(bytes(map(int, found[1].split(", ")))).decode())),
    ):  # fmt: skip
        parts = re.sub(written, instead, parts)
    value = json.dumps({"parts": json.loads(parts)}, ensure_ascii=False, separators=(",", ":"))
    headers = re.findall(r'\{ "(\w+)", Encoding\.UTF8\.GetBytes\("([^"]+)"\) \}', program)
    [topic] = re.findall(r'ProduceAsync\("(\w+)", message\)', program)
    [key] = re.findall(r'Key = "([^"]+)"', program)

    assert Sent(topic, key, value, headers) == EXPECTED
    assert "JsonSerializer.SerializeToUtf8Bytes(new { parts }, options)" in program
    assert "UnsafeRelaxedJsonEscaping" in program  # else it writes \u0022 and \u20AC, which mean the same


def test_lines_of_send() -> None:
    """Each example line is a transaction, and the remedy is one under the transfer's key."""
    blocks = transactions.blocks("json", transactions.TEXT.split("## The format")[0])
    close, transfer = (parse(block.encode()) for block in blocks)

    assert isinstance(close, TransactionLine)
    assert isinstance(transfer, TransactionLine)
    assert (close.group, transfer.group) == ("acct-1", "acct-1")
    assert [(part.address, part.group, part.value) for part in close.parts] == [
        ("payments", "acct-2", "close")
    ]


def test_reasons() -> None:
    for parts, quoted in (
        ([{}, {"value": 10}, {}], '`part 2/3: "value" is not a string: write other values as the text that consumers expect, or as value_base64`'),
        ([{}, {"address": "ledgers"}], "`part 2/2: address 'ledgers' is not in transaction_addresses of transfers: …`"),
    ):  # fmt: skip
        value, headers = json.dumps({"parts": parts}).encode(), (("_RF_TX", b"json/1"),)
        given: Any = SimpleNamespace(key=b"", value=value, headers=headers, offset=0, timestamp=0)
        found = validate(tomllib.loads(transactions.block("toml")))
        transfers = found.configured("transfers")
        with pytest.raises(worker.MalformedEnvelopeError) as caught:
            Units(transfers, found.transaction_targets(transfers)).open(given, None)

        assert quoted in re.sub(r"\s+", " ", transactions.TEXT)
        assert str(caught.value).startswith(quoted.strip("`").removesuffix("…"))


TEXT = b'{"amount":10,"memo":"%b"}' % (b"m" * 77)
FULL = 1_048_588
"""``max.message.bytes`` of a topic, unless it says otherwise."""


def test_how_many_fit() -> None:
    """The stated number of parts fits an envelope of the default size, and a hundred more do not."""
    for value, said in (
        (TEXT, r"some ([\d,]+) parts with a value of 100 bytes of JSON and a key of 11"),
        (b"\xff" * 100, r"([\d,]+)\s+with 100 bytes in base64"),
    ):
        found = re.search(said, transactions.TEXT)
        assert found is not None
        count = int(found[1].replace(",", ""))

        assert len(value) == 100
        assert len(envelope([Part(value, "acct-000001")] * count).value) < FULL - 1_000
        assert len(envelope([Part(value, "acct-000001")] * (count + 100)).value) > FULL
