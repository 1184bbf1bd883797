"""All code that depends on private parts of aiokafka. An import changes nothing; :func:`install` applies the patches."""

import functools
from typing import Final

CHECKED_VERSIONS: Final = {"aiokafka": "0.14.0", "faust-streaming": "0.15.3"}
"""Versions that the patches were checked with. Check each module again before another version is used."""


def install(*, whole_process: bool = False, record_bytes_max: int | None = None) -> None:
    """Patch aiokafka in this process, before its first client. May be called again.

    Args:
        whole_process: Whether the process belongs to Ringfence. All clients, also Faust's, then create no topics, and consumers read
            malformed records instead of failing.
        record_bytes_max: Size limit of a record in a compressed batch, in bytes; larger ones are replaced. None = the default.
    """
    _install_once()
    if whole_process:
        from ringfence_kafka.aiokafka_patches import internals, lenient_records

        internals.create_no_topics()
        lenient_records.install(record_bytes_max)


def installed() -> bool:
    """Return whether :func:`install` was called."""
    return _install_once.cache_info().currsize == 1


@functools.cache
def _install_once() -> None:
    from ringfence_kafka.aiokafka_patches import (
        batch_parts,
        internals,
        membership,
        rebootstrap,
        throttling,
        token_login,
    )

    batch_parts.install()
    internals.install()
    membership.install()
    rebootstrap.install()
    throttling.install()
    token_login.install()
