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
@pytest.mark.parametrize("words", [["status", "all"], ["targets", "--check"], ["logs", "gate-01"]])
def test_an_ssh_config_named_by_a_found_inventory_runs_nothing(folder, deploy, has_run, text, words):
    (folder / "targets.toml").write_text(INVENTORY.format(*text))

    done = deploy(*words)

    assert not has_run()
    assert done.returncode == 2
    line = 2 if text[0] else 4
    assert f"targets.toml:{line}: " in done.stderr
    assert "name it: --targets targets.toml" in done.stderr
    assert "edge-deploy targets --trust targets.toml" in done.stderr


def test_a_found_inventory_without_an_ssh_config_is_used(folder, deploy):
    (folder / "targets.toml").write_text(INVENTORY.format("", ""))

    done = deploy("targets")

    assert (done.returncode, done.stdout.split()[0]) == (0, "gate-01")


def test_an_inventory_that_is_named_may_name_an_ssh_config(deploy, has_run):
    deploy("status", "all", "--targets", "targets.toml")

    assert has_run()


def test_an_inventory_that_was_trusted_once_is_used_until_one_of_its_files_changes(folder, deploy, has_run):
    assert deploy("targets", "--trust", "targets.toml").returncode == 0

    deploy("status", "all")
    assert has_run()

    for name in ("ssh_config", "targets.toml"):
        before = (folder / name).read_text()
        (folder / name).write_text(before + "# changed\n")
        assert (deploy("status", "all").returncode, has_run()) == (2, False)
        (folder / name).write_text(before)
    deploy("status", "all")
    assert has_run()


def test_a_copy_of_a_trusted_inventory_elsewhere_is_another_one(folder, deploy, has_run, tmp_path):
    deploy("targets", "--trust", "targets.toml")
    (tmp_path / "elsewhere").mkdir()
    for name in ("ssh_config", "targets.toml"):
        (tmp_path / "elsewhere" / name).write_bytes((folder / name).read_bytes())

    done = deploy("status", "all", cwd=tmp_path / "elsewhere")

    assert (done.returncode, has_run()) == (2, False)


@pytest.mark.parametrize("content", ["", "[]", '{"', "[" * 100_000])
def test_a_record_of_trust_that_cannot_be_read_trusts_nothing(folder, deploy, has_run, tmp_path, content):
    (tmp_path / "config/edge-deploy").mkdir(parents=True)
    (tmp_path / "config/edge-deploy/trusted.json").write_text(content)

    assert (deploy("status", "all").returncode, has_run()) == (2, False)


def test_the_record_of_trust_is_its_owners_alone(deploy, tmp_path):
    deploy("targets", "--trust", "targets.toml")

    kept = tmp_path / "config/edge-deploy/trusted.json"
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_an_inventory_of_the_users_own_configuration_may_name_an_ssh_config(folder, deploy, has_run, tmp_path):
    own = tmp_path / "config/edge-deploy"
    own.mkdir(parents=True)
    for name in ("ssh_config", "targets.toml"):
        (folder / name).rename(own / name)

    for here in (folder, own):
        deploy("status", "all", cwd=here)
        assert has_run()
