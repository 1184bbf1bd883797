import pytest

from app.commands.audit import _validated
from ringfence_kafka.config.settings import AddressDefaults
from ringfence_kafka.errors import ConfigurationError


def test_forms_of_an_id() -> None:
    """Forms on the command line are checked as those of the file; those of the file are the default."""
    base = AddressDefaults(duplicate_id_from=("header:a", "key"), duplicate_id_missing="quarantine")
    default = _validated(base, {"duplicate_id_from": ()})
    named = _validated(base, {"duplicate_id_from": ("value:/id", "key")})

    assert default.duplicate_id_from == ("header:a", "key")
    assert (named.duplicate_id_from, named.duplicate_id_missing) == (("value:/id", "key"), "quarantine")
    with pytest.raises(ConfigurationError, match="--id-from: 'value:id': a JSON pointer begins with /"):
        _validated(base, {"duplicate_id_from": "value:id"})
