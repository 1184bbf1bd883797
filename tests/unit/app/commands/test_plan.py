import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import cli
from app.commands.plan import DIRTY, MIB, SEGMENT, STALE_S, Plan
from app.commands.topics.required_topics import CHANGELOG_CONFIG
from ringfence_kafka.config.settings import AppSettings
from ringfence_kafka.errors import ConfigurationError


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments], standalone_mode=False, catch_exceptions=True)


def _json(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_run("--json", *arguments).output)
    return found


def _plan(rate: float, size: float, ids: float, *, lane_ids_max: int = 10_000_000, **changes: Any) -> Plan:
    load = {
        "outage_s": 0, "catch_up_s": None, "largest_group": 0, "replicas": 3, "broker_cores": 24, "broker_network": 3.75e9,
        "worker_memory_max": 2**31,
    }  # fmt: skip
    return Plan(
        rate=rate, size=size, ids=ids, app=AppSettings(resident_ids_max=lane_ids_max), **(load | changes)
    )


def test_memory_is_no_less_than_any_peak() -> None:
    """The planned memory covers every peak of the native core in docs/performance.md and bench/measurements.md."""
    for peak_mib, lanes, ids in ((177, 4, 80_000), (410, 64, 0), (760, 1, 10_000_000)):
        found = _plan(1_000, 100, ids, lane_ids_max=max(ids, 1) // lanes)

        planned = found.worker_memory / MIB + (lanes - found.lanes) * 1.4
        assert peak_mib <= planned <= 2.2 * peak_mib


def test_an_outage_asks_for_more_workers() -> None:
    """An outage needs more workers, which process new and delayed messages at twice the rate.

    One worker may be away: all IDs fit the others, of which the busiest has a quarter more than its part. A disk is of
    no use after half of a day.
    """
    none, same, longer = (
        _plan(500_000, 154, 1e6, outage_s=hours * 3600, catch_up_s=within * 3600)
        for hours, within in ((0, 0), (1, 0), (1, 4))
    )

    assert none.workers - 1 == 4
    assert same.workers - 1 == 7
    assert none.workers < longer.workers < same.workers
    assert longer.recovery_s == 4 * 3600

    found, short, long = (_plan(1_000, 154, 120e6, outage_s=hours * 3600) for hours in (0, 11, 13))
    needed = found.workers - 1
    assert found.worker_share == pytest.approx(1.25 / needed)
    assert found.worker_memory >= 120e6 * 56 * 1.25 / needed
    assert (short.restart_s < short.empty_s, long.restart_s == long.empty_s) == (True, True)


def test_what_no_plan_fits_is_told() -> None:
    """No number of workers helps a group too large for one lane, a worker too small for its messages, and too many IDs."""
    with pytest.raises(ConfigurationError, match=r"largest group has 200,000 messages/s .*divide the group"):
        _plan(1e6, 100, 1e6, largest_group=0.2)
    with pytest.raises(ConfigurationError, match=r"a worker needs [\d,]+ MiB .*--worker-memory"):
        _plan(1, 1, 1, worker_memory_max=100 * MIB)
    for memory in (2**31, 2**40):
        with pytest.raises(ConfigurationError, match=r"IDs need more than 100,000 partitions"):
            _plan(1, 1, 1e13, worker_memory_max=memory)


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
    for option, text, expected in (
        ("rate", "5 k", 5_000), ("rate", "1.5M", 1.5e6), ("ids", "2G", 2e9), ("size", "2KiB", 2048), ("size", "1.5MB", 1.5e6),
    ):  # fmt: skip
        assert (
            _json("--rate", "1k", "--ids", "0", "--worker-memory", "1TiB", f"--{option}", text)[option]
            == expected
        )
    assert _json("--rate", "1k", "--resends-within", "2h")["ids"] == 7_200_000


def test_the_changelog_is_planned_as_it_is_configured() -> None:
    assert int(CHANGELOG_CONFIG["delete.retention.ms"]) / 2000 == STALE_S
    assert float(CHANGELOG_CONFIG["min.cleanable.dirty.ratio"]) == DIRTY
    assert int(CHANGELOG_CONFIG["segment.bytes"]) == SEGMENT


def test_faults_name_the_way_out() -> None:
    for arguments, says in (
        ("--rate 5m --ids 1k", "not a number"),  # a small m is a minute, not a million
        ("--rate 1e6 --ids 1k", "write for example"),
        ("--rate 5k --size 1XB --ids 1k", "not a size"),
        ("--rate 5k --ids 1k --outage 2", "not a time: write for example 90s"),
        ("--rate 0 --ids 1k", "not a number above 0"),
        ("--rate 1 --ids 1k --catch-up 0s", "not a time above 0"),
        ("--rate 5k --ids 1k --resends-within 1h", "choose one"),
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

    assert found["ids"] == 8 * 1_000 + 4 * 20_000 + 20_000
    assert found["base_memory"] == (82 + 2 * 32) * MIB
    config.write_text("")
    assert "--resends-within" in str(_run("--rate", "1k", "--config", str(config)).exception)


def test_what_does_not_fit_is_told() -> None:
    """A plan that exceeds the given brokers ends with exit code 1. One that fits names its nearest limit."""
    arguments = ("--rate", "100k", "--size", "10KiB", "--ids", "1M", "--broker-cores", "600")
    done, enough = _run(*arguments), _run(*arguments, "--broker-network", "20GB")

    assert done.return_value == 1
    assert (
        "Does not fit: the network of the brokers supports 0.36 times this load: more brokers" in done.output
    )
    assert "Nearest limit" not in done.output
    assert enough.return_value == 0
    assert enough.output.count("times this load") == enough.output.count("Nearest limit: ") == 1
