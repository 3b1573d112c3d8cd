import pytest

from edge.deploy.provision import wheels as gathering
from tests.support.wheels import little_wheel


@pytest.fixture
def standing_in(tmp_path, monkeypatch):
    """Return what stands in for our own wheel, by what it requires, and for the package index, by a folder."""

    def stand_in(*requires, extras=(), **libraries):
        index, own = tmp_path / "index", tmp_path / "own"
        index.mkdir()
        own.mkdir()
        ours = little_wheel(own, "edge-deploy", "0.1.0", *requires, extras=extras).read_bytes()
        for name, version in {"pip": "26.0", **libraries}.items():
            little_wheel(index, name, version)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(index))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(gathering, "own_wheel", lambda: ours)
        return index

    return stand_in
