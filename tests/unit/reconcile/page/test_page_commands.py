import random
import shlex
from dataclasses import replace

import pytest
from pyspark.sql import Row

from reconcile.page.report_data import Finding
from reconcile.run.outcome import report_model
from tests.support.pages.report import PLAIN, found, read
from tests.support.reconcile import figures


def test_every_finding_can_be_looked_at() -> None:
    """100 findings of each of the 11 anomalies: all named, each place with both commands, and they quote what they name."""
    servers, topic = "a:1,$(b):2", "it's; rm -rf $HOME `x`"
    chance = random.Random(1)
    findings = [figures.finding(name, at, chance, topic) for name in figures.ANOMALIES for at in range(100)]
    counts = dict.fromkeys(figures.ANOMALIES, 100) | {"LOST": 12_345}
    seen = read(replace(PLAIN, anomalies=counts, findings=findings), verdict="anomalies", servers=servers)
    places = [
        (name, partition, offset)
        for finding in findings
        for name, partition, offset in (
            (finding.topic, finding.partition, finding.offset),
            (finding.out_topic, finding.out_partition, finding.out_offset),
            (finding.topic, finding.other_partition, finding.other_offset),
        )
        if name is not None and partition is not None and offset is not None
    ]
    assert len(places) == 200 + 900 * 3
    words = [shlex.split(command) for command in seen.commands]

    assert [(word[5], int(word[7]), int(word[9])) for word in words[::2]] == places
    assert [(word[4], int(word[6]), int(word[8])) for word in words[1::2]] == places
    assert {(*word[:5], *word[10:]) for word in words[::2]} == {
        ("kcat", "-C", "-b", servers, "-t", "-c", "1", "-e", "-f", r"%p/%o %h %k %s\n")
    }
    assert {tuple(word[:4]) for word in words[1::2]} == {
        ("kafka-console-consumer.sh", "--bootstrap-server", servers, "--topic")
    }
    assert seen.said.count("The first 100 of 12,345.") == 1
    assert seen.said.count("95 more") == 11
    assert "Look at the anomalies of each address, below." in seen.said


def test_no_command_that_does_something_else() -> None:
    """A command that would do something else is replaced by a sentence.

    For example, kcat reads -5 as the last five, and a terminal obeys pasted text.
    """
    for changed, servers in (
        ({"offset": -5}, "k:1"),
        ({"partition": -1}, "k:1"),
        ({"topic": "a\x1b[201~;reboot\n"}, "k:1"),
        ({}, "k:1\r"),
    ):
        seen = read(replace(PLAIN, findings=[found(**changed)]), servers=servers)

        assert seen.commands == []
        assert "No command: " in seen.said


@pytest.mark.parametrize(("suspected", "commands"), [(None, 2), ("LOST", 4)])
def test_what_is_gone_is_not_read(suspected: str | None, commands: int) -> None:
    """A GAP has no command for the deleted input, which would wait or show later records. The output still exists, and has one."""
    row = dict.fromkeys(Finding.__dataclass_fields__) | {"anomaly": "GAP", "topic": "t", "detail": "why"}
    row |= {"partition": 0, "offset": 4, "out_topic": "o", "out_partition": 1, "out_offset": 9}
    seen = read(replace(PLAIN, findings=[report_model.finding(Row(**row, suspected=suspected))]))

    assert len(seen.commands) == commands
    assert "-t o -p 1 -o 9" in seen.commands[-2]
    assert ("No command: what stood there is gone." in seen.said) is (suspected is None)
