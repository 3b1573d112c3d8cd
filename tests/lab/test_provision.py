"""`edge-deploy provision` against a machine that has only what Debian puts there."""

import json
import os

import pytest

from tests.lab.provisioning import provision

# What any login, boot or change of accounts leaves behind, whoever does it.
_TRACES = (
    "var/log",
    "var/lib/systemd",
    "var/cache",
    "var/tmp",
    "tmp",
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "etc/subuid-",
    "etc/subgid-",
    "etc/.pwd.lock",
    "etc/machine-id",
    "etc/resolv.conf",
    "home/admin",
    "var/lib/dbus",
    "var/lib/sudo",
)
_SYSTEMCTL = "/usr/bin/systemctl"


def listing(device) -> dict[str, tuple[object, ...]]:
    """Every path that is not as in the image: its rights, its owner and what is in it; times left out."""
    upper, base = device.layers[0], device.layers[-1]
    paths = sorted(path.relative_to(upper) for path in upper.rglob("*"))
    kept = [path for path in paths if not any(path.is_relative_to(trace) for trace in _TRACES)]
    now = {str(path): describe(device.root / path) for path in kept}
    return {path: value for path, value in now.items() if value != describe(base / path)}


def describe(path) -> tuple[object, ...]:
    if not path.exists() and not path.is_symlink():
        return ()
    status = path.lstat()
    rights = (oct(status.st_mode), status.st_uid, status.st_gid)
    if path.is_symlink():
        return (*rights, os.readlink(path))
    return (*rights, path.read_bytes()) if path.is_file() else rights


def instead(device, unit: str, text: str) -> None:
    """Have a unit run something else in its cage, until the next boot."""
    folder = f"/run/systemd/system/{unit}.service.d"
    device.run(f"mkdir -p {folder}; cat > {folder}/99-test.conf", content=text)
    device.run(f"systemctl daemon-reload; systemctl stop {unit}; systemctl reset-failed {unit}", check=False)


def test_a_plan_for_a_fresh_machine_names_the_changes_and_makes_none(device):
    before = listing(device)

    done = provision(device, "--plan", "--json")

    assert done.returncode == 10, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    changes = [one["hint"] for one in events if (one["phase"], one["event"]) == ("plan", "note")]
    assert "create user edge-deploy" in changes
    assert "write /etc/sudoers.d/edge-deploy" in changes
    assert listing(device) == before


def test_provision_again_has_nothing_to_change_and_undo_leaves_what_was_there_before(device):
    before = listing(device)

    first = provision(device)
    planned = provision(device, "--plan")
    again = provision(device)
    undone = provision(device, "--undo")

    assert (first.returncode, planned.returncode, again.returncode, undone.returncode) == (0, 0, 0, 0), first.stderr
    assert "nothing to change" in planned.stdout
    assert "nothing to change" in again.stdout
    assert listing(device) == before


def lines_of(done) -> list[str]:
    """The changes that a command has shown."""
    return [line for line in done.stdout.splitlines() if line.startswith("  ")]


def test_undo_keeps_data_its_owners_and_credentials_until_it_is_told_to_purge(provisioned):
    provisioned.run("sudo -u edge-deploy sh -c 'echo blob > /var/lib/edge-deploy/store/sha256/aa'")
    provisioned.run("install -m 600 /dev/stdin /etc/edge-deploy/credentials/gate-east", content="user:secret\n")

    kept = provision(provisioned, "--undo")

    assert kept.returncode == 0, kept.stderr
    assert "keep /var/lib/edge-deploy" in kept.stdout
    assert "keep /etc/edge-deploy/credentials: it holds data" in kept.stdout
    assert provisioned.run("stat -c %U /var/lib/edge-deploy/store/sha256/aa").stdout == "edge-deploy\n"
    assert provisioned.run("test -e /etc/sudoers.d/edge-deploy -o -e /opt/edge", check=False).returncode == 1

    planned = provision(provisioned, "--undo", "--purge", "--plan")
    purged = provision(provisioned, "--undo", "--purge")

    assert purged.returncode == 0, purged.stderr
    assert lines_of(planned) == lines_of(purged) != []
    gone = provisioned.run("id edge-deploy; ls -d /var/lib/edge-deploy /etc/edge-deploy", check=False)
    assert gone.stdout == ""


def test_a_file_of_somebody_else_is_not_overwritten_and_nothing_else_is_written(device):
    device.run("echo '# mine' > /etc/sudoers.d/edge-deploy; chmod 440 /etc/sudoers.d/edge-deploy")
    before = listing(device)

    done = provision(device)

    assert done.returncode == 4, done.stdout
    assert "/etc/sudoers.d/edge-deploy is there and was not written by provision" in done.stdout
    assert listing(device) == before


def test_a_setting_that_a_person_has_changed_stays(provisioned):
    provisioned.run("echo 'reserve_bytes = 1' >> /etc/edge-deploy/device.toml")

    done = provision(provisioned)

    assert done.returncode == 0, done.stderr
    assert "nothing to change" in done.stdout
    assert "reserve_bytes = 1" in provisioned.run("cat /etc/edge-deploy/device.toml").stdout


def test_a_unit_that_was_changed_since_is_not_overwritten(provisioned):
    provisioned.run("echo '# changed' >> /etc/systemd/system/edge-runtime.service")

    done = provision(provisioned)

    assert done.returncode == 4
    assert "edge-runtime.service was changed since provision wrote it" in done.stdout


def test_lines_that_others_put_there_stay_as_they_are(provisioned):
    signer = 'mina@site valid-before="20990101" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOthersKey'
    provisioned.run(f"echo '{signer}' >> /etc/edge-deploy/allowed_signers")

    assert provision(provisioned, "--undo").returncode == 0

    assert provisioned.run("cat /etc/edge-deploy/allowed_signers").stdout == f"{signer}\n"


def test_a_key_that_already_gets_a_shell_is_refused(device):
    key = device.push_key.with_suffix(".pub").read_text().strip()
    device.run(f"mkdir -p /etc/edge-deploy/home/.ssh; echo '{key}' > /etc/edge-deploy/home/.ssh/authorized_keys")

    done = provision(device)

    assert done.returncode == 4, done.stderr
    assert "by another line" in done.stdout


def test_the_units_are_accepted_by_the_devices_own_systemd(provisioned):
    done = provisioned.run("systemd-analyze verify /etc/systemd/system/edge-*.service")

    assert done.stdout + done.stderr == ""


def test_the_push_key_gets_the_agent_and_no_shell(provisioned):
    asked = provisioned.over_ssh(provisioned.pusher(), "id; touch /tmp/was-here")

    assert "uid=" not in asked.stdout
    assert provisioned.run("test -e /tmp/was-here", check=False).returncode == 1


def test_the_push_user_cannot_change_who_is_let_in(provisioned):
    tried = provisioned.run(
        "sudo -u edge-deploy sh -c 'echo x >> /etc/edge-deploy/home/.ssh/authorized_keys || mkdir ~/.ssh2'", check=False
    )

    assert tried.returncode != 0


@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("start edge-build.service", True),
        ("start edge-trial.service", True),
        ("restart edge-runtime.service", True),
        ("reset-failed edge-runtime.service", True),
        ("stop edge-runtime.service", False),
        ("start edge-build.service ssh.service", False),
        ("--no-block start edge-trial.service", False),
        ("restart ssh.service", False),
        ("edit edge-runtime.service", False),
    ],
)
def test_sudo_allows_exactly_four_lines(provisioned, command, is_allowed):
    asked = provisioned.run(f"sudo -u edge-deploy sudo -n -l {_SYSTEMCTL} {command}", check=False)

    assert (asked.returncode == 0) is is_allowed, asked.stderr


@pytest.mark.parametrize("unit", ["edge-runtime", "edge-build", "edge-trial", "edge-recover", "edge-rollback"])
def test_each_unit_starts_in_its_cage_on_a_machine_without_gpu(provisioned, unit):
    needs_libraries = unit in ("edge-runtime", "edge-build")
    program = "import cv2, numpy, onnx, openvino, gi" if needs_libraries else "import edge.errors"
    instead(
        provisioned,
        unit,
        "[Unit]\nAssertPathExists=\nOnFailure=\n[Service]\nType=oneshot\nRestart=no\nExecStartPost=\n"
        f'ExecStart=\nExecStart=/opt/edge/bin/python -c "{program}"\n',
    )

    done = provisioned.run(f"systemctl start {unit} || journalctl -u {unit} -n 20 --no-pager", timeout_s=120)

    assert done.stdout == ""


def test_a_credential_reaches_the_runtime_and_its_loss_does_not_stop_the_unit(provisioned):
    provisioned.run("install -m 600 /dev/stdin /etc/edge-deploy/credentials/gate-east", content="user:secret\n")
    assert provision(provisioned).returncode == 0
    instead(
        provisioned,
        "edge-runtime",
        "[Unit]\nAssertPathExists=\n[Service]\nType=oneshot\nRestart=no\nExecStart=\n"
        'ExecStart=/bin/sh -c "cat ${CREDENTIALS_DIRECTORY}/gate-east > /var/lib/edge-runtime/got"\n',
    )

    provisioned.run("systemctl start edge-runtime")
    assert provisioned.run("cat /var/lib/edge-runtime/got").stdout == "user:secret\n"

    provisioned.run("rm /etc/edge-deploy/credentials/gate-east; systemctl start edge-runtime")
    assert provisioned.run("cat /var/lib/edge-runtime/got").stdout == "gone"


def test_a_program_of_ours_loads_nothing_that_a_compromised_runtime_has_left_at_home(provisioned):
    provisioned.run(
        "sudo -u edge-runtime sh -c 'cd; for each in /usr/lib/python3.*; do mkdir -p"
        ' ".local/lib/${each##*/}/site-packages" && echo "open(\\"/var/lib/edge-runtime/ran\\", \\"w\\")"'
        ' > ".local/lib/${each##*/}/site-packages/usercustomize.py"; done; python3 -c pass; rm ran\''
    )

    done = provisioned.run(
        "sudo -u edge-runtime env HOME=/var/lib/edge-runtime PYTHONPATH=/var/lib/edge-runtime "
        "/opt/edge/bin/edge-runtime health; test -e /var/lib/edge-runtime/ran",
        check=False,
    )

    assert done.returncode == 1, done.stdout + done.stderr


def test_no_other_user_holds_a_lock_and_root_leaves_none_that_is_its_own(provisioned):
    provisioned.run("/opt/edge/bin/edge-runtime recover --boot")

    assert provisioned.run("stat -c %U:%a /run/edge-deploy/state.lock").stdout == "edge-deploy:600\n"
    for user in ("nobody", "edge-runtime"):
        assert provisioned.run(f"sudo -u {user} flock -n /run/edge-deploy/state.lock true", check=False).returncode != 0
    assert provisioned.run("sudo -u edge-deploy edge-runtime recover --boot", check=False).returncode == 0
