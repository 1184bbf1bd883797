"""Addresses of Artemis and HornetQ, and the settings that match them. Pure."""

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.commands.init.broker_xml import BrokerFile
from app.commands.init.draft import Table, section
from app.commands.init.remarks import Remarks
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_kafka.config.addresses import MAX_ID_CACHE_SIZE

_ID_CACHE_SIZE: Final = "id-cache-size"
_CACHE_SIZES: Final = {"Artemis": 20_000, "HornetQ": 2_000}
"""Default ID cache size of each broker."""
_COUNT: Final = re.compile(r"[0-9]{1,10}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")
_PERSIST: Final = "persist-id-cache"
_ATTEMPTS: Final = 10
"""Default of max-delivery-attempts in both brokers."""
_LIMIT: Final = "max-delivery-attempts"
_RETRIES: Final = (
    _LIMIT, "redelivery-delay", "redelivery-delay-multiplier", "redelivery-multiplier", "max-redelivery-delay",
    "redelivery-collision-avoidance-factor",
)  # fmt: skip
_DEAD: Final = ("dead-letter-address", "expiry-address")
_INTERNAL: Final = ("activemq.", "$")
_ALL: Final = "#"


class AddressSettings:
    """Addresses in a broker's file."""

    def __init__(self, broker: BrokerFile, remarks: Remarks) -> None:
        self._broker = broker
        self._remarks = remarks
        self._settings = [
            (match, keys) for match, keys in broker.address_settings() if not match.startswith(_INTERNAL)
        ]
        self._settings.sort(key=lambda setting: _specificity(setting[0]))
        self._dead = {keys[key] for _, keys in broker.address_settings() for key in _DEAD if key in keys}
        self._queues: dict[str, list[str]] = {}
        for address, queue in broker.addresses():
            self._queues.setdefault(address, [])
            if queue:
                self._queues[address].append(queue)

    def address_of(self, queue: str) -> str:
        """Return the address of a queue, or the queue's own name."""
        address, qualified, _ = queue.partition("::")
        if qualified:
            return address
        return next((address for address, queues in self._queues.items() if queue in queues), queue)

    def named(self, prefix: str) -> list[str]:
        """Return a cluster connection's names and patterns for a prefix; ``orders.#`` includes ``orders``."""
        base = prefix.removesuffix(".#")
        return [base] * (base != prefix and base in self._queues) + [f"{prefix.removesuffix('#')}*"]

    def defaults(self) -> Table:
        """Return ``[address_defaults]``, and record keys without a counterpart."""
        broker = self._broker
        ours = self._values({_ID_CACHE_SIZE: self._default_size()}) | {"lanes": 1}
        if (persist := broker.text(_PERSIST).lower()) == "false":
            ours["persist_id_cache"] = False
        elif persist not in {"", "true"}:
            self._remarks.add(f"{_PERSIST} = {persist[:20]!r}", "it is not true or false")
        self._remark()
        reason = f"{broker.product} remembers the IDs of a whole address, as lanes = 1 does; lanes = 0 spreads an address over workers."
        return section("[address_defaults]", ours, [reason])

    def _default_size(self) -> str:
        for_all = next((keys for match, keys in self._settings if match == _ALL), {})
        default = self._broker.text(_ID_CACHE_SIZE) or str(_CACHE_SIZES[self._broker.product])
        return for_all.get(_ID_CACHE_SIZE, default)

    def _values(self, keys: Mapping[str, str]) -> dict[str, Any]:
        size = keys.get(_ID_CACHE_SIZE, "")
        if not size:
            return {}
        if not _COUNT.fullmatch(size) or int(size) > MAX_ID_CACHE_SIZE:
            self._remarks.add(f"{_ID_CACHE_SIZE} = {size[:20]!r}", "it is not 0 to 2,147,483,647")
            return {}
        return {"id_cache_size": int(size)}

    def _remark(self) -> None:
        for match, keys in self._settings:
            for key, value in keys.items():
                if key == "dead-letter-address":
                    self._remarks.add(f"{key} {value}", "dead letters of an address go to <address>.dlq")
                elif key not in {_ID_CACHE_SIZE, *_RETRIES}:
                    self._remarks.add(f"{key} ({match})", "")

    def patterns(self) -> Iterator[Table]:
        """Yield an entry for each pattern with imported keys, for future addresses."""
        found: dict[str, Table] = {}
        for match, keys in self._settings:
            if match != _ALL and _has_wildcard(match) and (values := self._values(keys)):
                name = match.replace(_ALL, "*")
                comments = ["Here * stands for any characters, also dots."]
                found[name] = Table(header="[[addresses]]", values={"name": name} | values, comments=comments)
        yield from found.values()

    def addresses(self, more: Sequence[str]) -> Iterator[Table]:
        """Yield an entry for each address, and for ``more`` names."""
        literal = [match for match, _ in self._settings if not _has_wildcard(match)]
        names = dict.fromkeys((*self._queues, *literal, *more))
        for match, keys in self._settings:
            if any(_matches(match, name) for name in names):
                continue
            for key in _RETRIES:
                if key in keys:
                    self._remarks.add(
                        f"{key} ({match})", "retries are options of ringfence consume, for each address"
                    )
        for name in names:
            if name in self._dead and name not in more:
                self._remarks.add(f"address {name}", "it holds dead letters or expired messages only")
            elif name and not name.startswith(_INTERNAL):
                yield self._entry(name)

    def _entry(self, name: str) -> Table:
        keys = {_ID_CACHE_SIZE: self._default_size()}
        repeated = False
        for match, found in self._settings:
            if _matches(match, name):
                keys |= found
            # Patterns match differently in both products, so the entry repeats the size.
            here = _matches(match, name) or fnmatch.fnmatchcase(name, match.replace(_ALL, "*"))
            repeated |= here and match != _ALL and _ID_CACHE_SIZE in found
        values = self._values(keys) if repeated else {}
        comments = []
        if queues := self._queues.get(name):
            comments.append(f"Each queue there is a consumer group here: {', '.join(queues)}")
        if options := self._consume_options(name, keys):
            comments.append(f"ringfence consume {name} … {options}")
        return Table(header="[[addresses]]", values={"name": name} | values, comments=comments)

    def _consume_options(self, name: str, keys: Mapping[str, str]) -> str:
        """Return the options of ``ringfence consume`` that retry messages like the broker."""
        if not set(_RETRIES) & keys.keys():
            return ""
        numbers = {key: float(keys[key]) for key in _RETRIES if _NUMBER.fullmatch(keys.get(key, ""))}
        for key in sorted(keys.keys() & set(_RETRIES) - numbers.keys()):
            self._remarks.add(f"{key} = {keys[key][:20]!r}", "it is not a number")
        attempts = int(numbers.get(_LIMIT, _ATTEMPTS))
        delay = numbers.get("redelivery-delay", 0.0) if attempts != 1 else 0.0
        growth = numbers.get("redelivery-delay-multiplier", numbers.get("redelivery-multiplier", 1.0))
        options: dict[str, Any] = {"max_attempts": attempts}
        if attempts < 1:
            self._remarks.add(
                f"{_LIMIT} = {attempts}", "each message has a last attempt; choose --max-attempts"
            )
            options = {}
        idle = set(_RETRIES) - {_LIMIT}
        if delay:
            idle = set() if growth > 1 else {"max-redelivery-delay"}
            options |= {"retry_delay": delay / 1_000, "retry_multiplier": growth}
            if growth > 1:
                options["retry_max"] = numbers.get("max-redelivery-delay", 10 * delay) / 1_000
            options["retry_jitter"] = numbers.get("redelivery-collision-avoidance-factor", 0.0)
        for key in sorted(key for key in idle if numbers.get(key)):
            self._remarks.add(
                f"{key} ({name})",
                "it has no effect without a second attempt, a delay that it changes, or growth",
            )
        try:
            ConsumerOptions(**options)
        except ValueError as error:
            self._remarks.add(f"retries of {name}", str(error))
            return ""
        return " ".join(f"--{key.replace('_', '-')} {value:.12g}" for key, value in options.items())


def _has_wildcard(match: str) -> bool:
    return "#" in match or "*" in match


def _matches(match: str, name: str) -> bool:
    """Return whether a setting matches an address: # is any number of dot-separated words, * is one."""
    words = re.sub(r"(#\.)+", "#.", f"{match}.").split(".")[:-1]
    parts = {"#": r"(?:[^.]*\.)*", "*": r"[^.]*\."}
    pattern = "".join(parts.get(word, re.escape(word) + r"\.") for word in words)
    return re.fullmatch(pattern, f"{name}.") is not None


def _specificity(match: str) -> tuple[bool, int, int]:
    """Return a sort key that puts general settings before specific ones."""
    return not _has_wildcard(match), len(re.sub("[#*]", "", match)), match.count("*")
