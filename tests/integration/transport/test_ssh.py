"""What a person reads when the connection does not come about; a real sshd on loopback."""

import contextlib
import re
import shlex
import socket
import subprocess
import sys

import pytest

from edge.deploy.provision.admin import AdminShell
from edge.errors import DeployError
from edge.transport.channel import Message
from edge.transport.ssh import SshAddress, SshChannel
from tests.support.manifests import ssh_key
from tests.support.ports import free_port
from tests.support.raised import error_of
from tests.support.sshd import Sshd


@pytest.fixture
def server(tmp_path):
    with Sshd(tmp_path / "sshd", command=None) as running:
        yield running


def _failure(address, *, remote=("true",), options=()):
    with (
        contextlib.closing(SshChannel(address, remote=remote, options=options)) as channel,
        pytest.raises(DeployError) as caught,
    ):
        channel.receive(timeout_s=60)
    return caught.value


def _of_provision(address):
    return error_of(AdminShell(address=address).wants_password)


BOTH = pytest.mark.parametrize("failure", [_failure, _of_provision], ids=["push", "provision"])


@BOTH
def test_an_unknown_host_key_is_refused_with_what_to_do(server, failure):
    server.known_hosts.write_text("")
    error = failure(server.address())
    assert error.code == "transfer.ssh.hostkey"
    assert error.hint.endswith(f": ssh -F {server.address().config} device")  # ssh-keyscan reads no ssh_config
    assert error.exit_code == 3


@BOTH
def test_a_changed_host_key_is_taken_away_only_once_somebody_knows_why(server, failure):
    other = (server.directory / "user_key.pub").read_text().split()[:2]
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {' '.join(other)}\n")
    error = failure(server.address())
    assert error.code == "transfer.ssh.hostkey"
    assert "device: WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!" in error.problem
    assert "installed anew" in error.hint
    assert "ssh-keygen -R NAME -f FILE" in error.hint  # a server that is taken over cannot say whose key is to go
    by_hand = shlex.split(re.search(r"what (ssh .+ device) shows", error.hint)[1])
    shown = subprocess.run([*by_hand, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stderr
    name, file = re.search(r"Host key for (\S+) has", shown)[1], re.search(r"Offending .* key in (.+):\d+", shown)[1]
    assert subprocess.run(["ssh-keygen", "-R", name, "-f", file]).returncode == 0
    assert server.known_hosts.read_text() == ""


@pytest.mark.parametrize(
    ("failure", "todo"),
    [
        (_failure, "edge-deploy provision device --key"),
        (_failure, "AllowUsers"),  # provision has let it in, and would change nothing
        (_of_provision, "--admin"),
    ],
)
def test_a_key_that_the_device_does_not_know_is_refused(server, failure, todo):
    (server.directory / "authorized_keys").write_text("")
    error = failure(server.address())
    assert error.code == "transfer.ssh.denied"
    assert "Permission denied" in error.problem
    assert todo in error.hint


@BOTH
def test_more_keys_than_the_device_tries_are_said_to_be_too_many(server, failure):
    address = server.address()
    (server.directory / "authorized_keys").write_text("")
    with address.config.open("a") as config:
        for number in range(7):  # sshd tries six
            config.write(f"  IdentityFile {ssh_key(server.directory, f'key-{number}')}\n")
    error = failure(address)
    assert error.code == "transfer.ssh.denied"
    assert "IdentitiesOnly" in error.hint
    assert "provision" not in error.hint


@BOTH
def test_a_port_where_nobody_listens_and_a_name_that_nobody_knows(server, failure):
    assert failure(server.address(port=free_port())).code == "transfer.ssh.refused"
    assert failure(SshAddress(host="no-such-device.invalid")).code == "transfer.ssh.unreachable"


def test_a_device_without_room_for_what_is_uploaded_has_failed_and_ssh_has_not(server, tmp_path):
    (tmp_path / "sudo").write_text('#!/bin/sh\necho "$6"\ncat >/dev/null\necho No space left on device >&2\nexit 2\n')
    (tmp_path / "sudo").chmod(0o755)
    server.allow(["sh", "-c", f'PATH={tmp_path}:$PATH; eval "$SSH_ORIGINAL_COMMAND"'])
    error = error_of(
        AdminShell(address=server.address()).stock, "/x", [server.known_hosts], on_bytes=lambda count: None
    )
    assert (error.code, "No space left" in error.problem) == ("device.provision", True)


@pytest.mark.parametrize(
    ("sudo", "todo"),
    [
        (None, "package manager"),
        ("", "ForceCommand"),
        ("echo admin is not in the sudoers file. >&2; exit 1", "--admin"),
        ("echo sudo: a password is required >&2; exit 1", "--ask-sudo-password"),
    ],
)
def test_what_hinders_sudo_has_a_remedy_of_its_own(server, tmp_path, sudo, todo):
    (tmp_path / "env").symlink_to("/usr/bin/env")
    if sudo is not None:
        (tmp_path / "sudo").write_text(f"#!/bin/sh\n{sudo}\n")
        (tmp_path / "sudo").chmod(0o755)
    server.allow(["/bin/sh", "-c", f'PATH={tmp_path}; eval "$SSH_ORIGINAL_COMMAND"'])
    error = error_of(AdminShell(address=server.address()).facts)
    todos = ("package manager", "ForceCommand", "--admin", "--ask-sudo-password")
    assert (error.code, [one for one in todos if one in error.hint][-1]) == ("request.sudo", todo)


def test_a_host_that_takes_the_connection_and_says_nothing(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = _failure(server.address(port=silent.getsockname()[1]), options=("ConnectTimeout=1",))
    assert error.code == "transfer.ssh.timeout"


def test_a_device_without_our_software(server):
    error = _failure(server.address(), remote=("edge-runtime-is-not-here", "agent"))
    assert error.code == "transfer.ssh.command"
    assert "provision" in error.hint


def test_a_shell_profile_that_prints_is_named(server):
    error = _failure(server.address(), remote=("echo", "Welcome to gate 1"))
    assert error.code == "transfer.protocol"
    assert "banner" in error.hint
    assert "Welcome to gate 1" in error.evidence["received"]


def test_what_the_remote_command_said_on_stderr_is_kept(server):
    error = _failure(server.address(), remote=("echo disk is gone >&2; exit 3",))
    assert error.code == "transfer.closed"
    assert error.evidence["stderr"] == ["disk is gone"]


def test_the_forced_command_runs_whatever_is_asked_for(server):
    says = 'import sys; sys.stdout.buffer.write(bytes([0, 0, 0, 18, 0]) + b\'{"verb":"forced"}\')'
    server.allow([sys.executable, "-c", says])
    with contextlib.closing(SshChannel(server.address(), remote=("cat", "/etc/shadow"))) as channel:
        assert channel.receive(timeout_s=60) == Message("forced", {})
