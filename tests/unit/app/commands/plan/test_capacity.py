import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import cli
from app.commands.plan.capacity import DIRTY, SEGMENT, STALE_S, Demand, plan
from app.commands.topics.required_topics import CHANGELOG_CONFIG
from ringfence_kafka.errors import ConfigurationError

MIB = 2**20


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments], standalone_mode=False, catch_exceptions=True)


def _json(*arguments: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(_run("--json", *arguments).output)
    return found


def test_memory_is_no_less_than_any_peak() -> None:
    """The planned memory covers every peak in docs/performance.md and bench/measurements.md."""
    for peak_mib, lanes, ids, native in (
        (177, 4, 80_000, True), (246, 4, 80_000, False), (504, 64, 64 * 20_000, False), (410, 64, 0, False),
        (396, 4, 950_272, False), (760, 1, 10_000_000, True),
    ):  # fmt: skip
        found = plan(Demand(1_000, 100, ids, resident_ids=max(ids, 1) / lanes, native=native))

        assert found.lanes == lanes if 0 < ids < 10_000_000 else True
        planned = found.worker_memory / MIB + (lanes - found.lanes) * 1.4
        assert peak_mib <= planned <= 2.2 * peak_mib


def test_an_outage_asks_for_more_workers() -> None:
    """An outage needs more workers, which process new and delayed messages at twice the rate.

    One worker may be away: all IDs fit the others, of which the busiest has a quarter more than its part. A disk is of
    no use after half of a day.
    """
    none, same, longer = (
        plan(Demand(500_000, 154, 1e6, outage_s=hours * 3600, catch_up_s=within * 3600))
        for hours, within in ((0, 0), (1, 0), (1, 4))
    )

    assert none.workers - 1 == 4
    assert same.workers - 1 == 7
    assert none.workers < longer.workers < same.workers
    assert longer.catch_up_s == 4 * 3600

    for native, id_bytes in ((True, 56), (False, 188)):
        found, short, long = (
            plan(Demand(1_000, 154, 120e6, native=native, outage_s=hours * 3600)) for hours in (0, 11, 13)
        )
        needed = found.workers - 1
        assert found.worker_share == pytest.approx(1.25 / needed)
        assert found.worker_memory >= 120e6 * id_bytes * 1.25 / needed
        assert (short.restart_s < short.empty_s, long.restart_s == long.empty_s) == (True, True)


def test_what_no_plan_fits_is_told() -> None:
    """A group too large for one lane is refused, whatever the number of lanes, and so is a worker too small for its messages."""
    with pytest.raises(ConfigurationError, match=r"largest group has 200,000 messages/s .*divide the group"):
        plan(Demand(1e6, 100, 1e6, largest_group=0.2))
    with pytest.raises(ConfigurationError, match=r"a worker needs [\d,]+ MiB .*--worker-memory"):
        plan(Demand(1, 1, 1, worker_memory=100 * MIB))


def test_one_lane() -> None:
    """Rate, IDs and memory of one worker limit a lane that has the whole address."""
    for arguments, answer in (
        ("--rate 5k --ids 100k", "yes │ one ring knows all IDs of the address"),
        ("--rate 100k --ids 100k", "no │ a lane judges 56,267 messages/s"),
        ("--rate 1k --ids 20M", "no │ a lane has at most 10,000,000 IDs"),
        ("--rate 1k --ids 9M --worker-memory 700MiB", "no │ one worker has all IDs in memory"),
    ):
        lines = _run(*arguments.split()).output.splitlines()
        row = next(line for line in lines if "│ lanes = 1 is enough " in line)

        assert answer in " ".join(row.split())


def test_units() -> None:
    large = ("--brokers", "100000", "--worker-memory", "1TiB")
    for option, text, expected in (
        ("rate", "5 k", 5_000), ("rate", "1.5M", 1.5e6), ("ids", "2G", 2e9), ("size", "2KiB", 2048), ("size", "1.5MB", 1.5e6),
    ):  # fmt: skip
        found = _json("--rate", "1k", "--ids", "0", *large, f"--{option}", text)
        assert found["demand"][option] == expected


def test_the_changelog_is_planned_as_it_is_configured() -> None:
    assert int(CHANGELOG_CONFIG["delete.retention.ms"]) / 2000 == STALE_S
    assert float(CHANGELOG_CONFIG["min.cleanable.dirty.ratio"]) == DIRTY
    assert int(CHANGELOG_CONFIG["segment.bytes"]) == SEGMENT


def test_faults_name_the_way_out() -> None:
    for arguments, says in (
        ("--rate 5m --ids 1k", "not a number"),  # a small m is a minute, not a million
        ("--rate 1e6 --ids 1k", "write for example"),
        ("--rate 5k --size 1XB --ids 1k", "not a size"),
        ("--rate 5k --ids 1k --outage 2", "not a duration"),
        ("--rate 0 --ids 1k", "0 needs no plan"),
        ("--rate 1 --ids 1k --catch-up 0s", "0 needs no plan"),
        ("--rate 5k --ids 1k --resends-within 1h", "choose one"),
        ("--rate 5k --ids 1k --brokers 1", "--replicas 3 needs as many brokers"),
        ("--rate 5k --ids 1k --bootstrap-server a:1", "has no effect with plan"),
    ):
        assert says in str(_run(*arguments.split()).exception)


def test_ids_of_the_configuration(tmp_path: Path) -> None:
    """The plan counts the IDs of each lane of each address, and the bounds of [app]. Without IDs it says what is missing."""
    config = tmp_path / "ringfence.toml"
    config.write_text(
        "[app]\nbuffer_bytes_max = 33554432\n"
        '[[addresses]]\nname = "a"\npartitions = 8\nid_cache_size = 1000\n[[addresses]]\nname = "b"\n'
        '[[addresses]]\nname = "c"\npartitions = 8\nlanes = 1\n'
    )
    found = _json("--rate", "1k", "--config", str(config))

    assert found["demand"]["ids"] == 8 * 1_000 + 4 * 20_000 + 20_000
    assert found["demand"]["buffer_bytes"] == 32 * MIB
    config.write_text("")
    assert "--resends-within" in str(_run("--rate", "1k", "--config", str(config)).exception)


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    """A plan that exceeds the given brokers ends with exit code 1. The weakest assumption of a plan is named."""
    arguments = ("--rate", "100k", "--size", "10KiB", "--ids", "1M", "--brokers", "3")
    done = _run(*arguments)

    assert done.return_value == 1
    assert re.search(r"Does not fit: the network of a broker .* more brokers", done.output)
    assert _run(*arguments[:-1], "60").return_value == 0
    config = tmp_path / "ringfence.toml"
    config.write_text("[app]\nresident_ids_max = 0\n")
    weakest = "Weakest assumption: IDs of a lane, their index in RocksDB"
    assert weakest in _run("--rate", "1k", "--ids", "8M", "--config", str(config)).output
    assert "Weakest" not in _run("--rate", "1k", "--ids", "8k", "--replicas", "1", "--brokers", "1").output
