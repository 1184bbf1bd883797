"""The trial of images and compose file: what it takes from a machine."""

from tests.containers import machine


def test_pip_settings_reach_the_images() -> None:
    """Pip's settings reach the images by their names in a file, without paths of this machine."""
    listed = r"""global.cert='/etc/ssl/certs/ca-certificates.crt'
global.index-url='https://one.example/simple'
global.trusted-host='\na.example\nb.example'
:env:.default-timeout='180'
:env:.find-links='/opt/wheels'
:env:.index-url='https://two.example/simple'
"""

    assert machine.pip_settings(listed) == (
        "[global]\nindex-url = https://two.example/simple\ntrusted-host = a.example b.example\ntimeout = 180\n"
    )
    assert machine.pip_settings("") == "[global]\n"
