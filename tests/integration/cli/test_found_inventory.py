"""An inventory in somebody else's folder runs nothing on the workstation of who stands in it."""

import pytest

from tests.support.command_line import command

pytestmark = pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick")

INVENTORY = '{}[[target]]\nname = "gate-01"\nhost = "gate-01"\n{}'


@pytest.fixture
def folder(tmp_path):
    """A folder with an inventory whose ssh_config runs a command for each connection."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "ssh_config").write_text(f"Host *\n  ProxyCommand touch {tmp_path}/ran\n")
    (folder / "targets.toml").write_text(INVENTORY.format('[defaults]\nssh_config = "ssh_config"\n', ""))
    return folder


@pytest.fixture
def deploy(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def deploy(*arguments, cwd=folder):
        monkeypatch.chdir(cwd)
        return command("edge-deploy", *arguments, expected=None)

    return deploy


@pytest.fixture
def has_run(tmp_path):
    def has_run():
        """Whether the command ran since this was last asked."""
        if not (tmp_path / "ran").exists():
            return False
        (tmp_path / "ran").unlink()
        return True

    return has_run


@pytest.mark.parametrize(
    "text", [('[defaults]\nssh_config = "ssh_config"\n', ""), ("", 'ssh_config = "ssh_config"\n')], ids=["all", "one"]
)
@pytest.mark.parametrize("words", [["status", "all"], ["targets"], ["logs", "gate-01"]])
def test_an_ssh_config_named_by_a_found_inventory_runs_nothing(folder, deploy, has_run, text, words):
    (folder / "targets.toml").write_text(INVENTORY.format(*text))

    done = deploy(*words)

    assert not has_run()
    assert done.returncode == 2
    line = 2 if text[0] else 4
    assert f"targets.toml:{line}: " in done.stderr
    assert "name it: --targets targets.toml" in done.stderr


def test_a_found_inventory_without_an_ssh_config_is_used(folder, deploy):
    (folder / "targets.toml").write_text(INVENTORY.format("", ""))

    done = deploy("targets")

    assert (done.returncode, done.stdout.split()[0]) == (0, "gate-01")


def test_an_inventory_that_is_named_may_name_an_ssh_config(deploy, has_run):
    deploy("status", "all", "--targets", "targets.toml")

    assert has_run()


def test_an_inventory_of_the_users_own_configuration_may_name_an_ssh_config(folder, deploy, has_run, tmp_path):
    own = tmp_path / "config/edge-deploy"
    own.mkdir(parents=True)
    for name in ("ssh_config", "targets.toml"):
        (folder / name).rename(own / name)

    for here in (folder, own):
        deploy("status", "all", cwd=here)
        assert has_run()
