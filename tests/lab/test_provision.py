"""`edge-deploy provision` against a machine that has only what Debian puts there."""

from __future__ import annotations

import json

import pytest

from tests.lab.provisioning import provision

# What any login, boot or change of accounts leaves behind, whoever does it.
_TRACES = [
    "/var/log",
    "/var/lib/systemd",
    "/var/lib/dbus",
    "/var/cache",
    "/var/tmp",
    "/tmp",
    "/run",
    "/proc",
    "/sys",
    "/dev",
    "/root",
    "/home/admin/.ssh",
    "/var/lib/sudo",
    "/etc/passwd-",
    "/etc/group-",
    "/etc/shadow-",
    "/etc/gshadow-",
    "/etc/subuid-",
    "/etc/subgid-",
    "/etc/.pwd.lock",
    "/etc/machine-id",
    "/etc/resolv.conf",
]
_SYSTEMCTL = "/usr/bin/systemctl"


def listing(device) -> list[str]:
    """Every path with its rights, its owner and what is in it; times left out."""
    skipped = " -o ".join(f"-path {path}" for path in _TRACES)
    found = device.run(
        f"find / -xdev \\( {skipped} \\) -prune -o \\( -type f -newer /etc/debian_version -printf '%p %m %u %g ' "
        f"-exec sha256sum {{}} \\; -o -printf '%p %m %u %g %l\\n' \\)",
        timeout_s=300,
    )
    return sorted(found.stdout.splitlines())


def test_a_plan_for_a_fresh_machine_names_the_changes_and_makes_none(device):
    before = listing(device)

    done = provision(device, "--plan", "--json")

    assert done.returncode == 10, done.stderr
    changes = json.loads(done.stdout)["targets"][0]["changes"]
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


def test_undo_keeps_data_and_its_owners_until_it_is_told_to_purge(provisioned):
    provisioned.run("sudo -u edge-deploy sh -c 'echo blob > /var/lib/edge-deploy/store/sha256/aa'")

    kept = provision(provisioned, "--undo")

    assert kept.returncode == 0, kept.stderr
    assert "keep /var/lib/edge-deploy" in kept.stdout
    assert provisioned.run("stat -c %U /var/lib/edge-deploy/store/sha256/aa").stdout == "edge-deploy\n"
    assert provisioned.run("test -e /etc/sudoers.d/edge-deploy -o -e /opt/edge", check=False).returncode == 1

    purged = provision(provisioned, "--undo", "--purge")

    assert purged.returncode == 0, purged.stderr
    gone = provisioned.run("id edge-deploy; ls -d /var/lib/edge-deploy /etc/edge-deploy", check=False)
    assert gone.stdout == ""


def test_a_file_of_somebody_else_is_not_overwritten_and_nothing_else_is_written(device):
    device.run("echo '# mine' > /etc/sudoers.d/edge-deploy; chmod 440 /etc/sudoers.d/edge-deploy")
    before = listing(device)

    done = provision(device)

    assert done.returncode == 4, done.stdout
    assert "/etc/sudoers.d/edge-deploy is there and was not written by provision" in done.stderr
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
    assert "edge-runtime.service was changed since provision wrote it" in done.stderr


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
    assert "by another line" in done.stderr


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
    libraries = (
        "import cv2, numpy, onnx, openvino, gi" if unit in ("edge-runtime", "edge-build") else "import edge.errors"
    )
    provisioned.run(
        f"mkdir -p /run/systemd/system/{unit}.service.d; printf '[Unit]\\nAssertPathExists=\\nOnFailure=\\n[Service]\\n"
        f'Type=oneshot\\nRestart=no\\nExecStartPost=\\nExecStart=\\nExecStart=/opt/edge/bin/python -c "{libraries}"\\n\' '
        f"> /run/systemd/system/{unit}.service.d/99-test.conf; systemctl daemon-reload; systemctl stop {unit}"
    )

    done = provisioned.run(f"systemctl start {unit} || journalctl -u {unit} -n 20 --no-pager", timeout_s=120)

    assert done.stdout == ""


def test_a_credential_reaches_the_runtime_and_its_loss_does_not_stop_the_unit(provisioned):
    provisioned.run("install -m 600 /dev/stdin /etc/edge-deploy/credentials/gate-east", content="user:secret\n")
    assert provision(provisioned).returncode == 0
    provisioned.run(
        "mkdir -p /run/systemd/system/edge-runtime.service.d; printf '[Unit]\\nAssertPathExists=\\n[Service]\\n"
        "Type=oneshot\\nRestart=no\\nExecStart=\\n"
        'ExecStart=/bin/sh -c "cp ${CREDENTIALS_DIRECTORY}/gate-east /run/edge-runtime/got"\\n\' '
        "> /run/systemd/system/edge-runtime.service.d/99-test.conf; systemctl daemon-reload"
    )

    provisioned.run("systemctl start edge-runtime")
    assert provisioned.run("cat /run/edge-runtime/got").stdout == "user:secret\n"

    provisioned.run("rm /etc/edge-deploy/credentials/gate-east; systemctl start edge-runtime")
    assert provisioned.run("cat /run/edge-runtime/got").stdout == ""
