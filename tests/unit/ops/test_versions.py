import tomllib

from tests.support.brokers.releases import VERSIONS
from tests.support.checkout import ROOT


def test_versions_agree() -> None:
    """Both distributions have the same version, which begins the changelog, and each release in it has its fixture."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    headings = [
        line.removeprefix("## ")
        for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
        if line.startswith("## ")
    ]
    released = [heading for heading in headings if heading != "Unreleased"]

    assert project["version"] == client["version"]
    assert f"ringfence-client=={client['version']}" in project["dependencies"]
    assert set(released) == set(VERSIONS)
    assert released[0] == project["version"]
