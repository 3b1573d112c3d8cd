"""What a person reads when the connection does not come about; a real sshd on loopback."""

import contextlib
import socket
import sys

import pytest

from edge.errors import DeployError
from edge.transport.channel import Message
from edge.transport.ssh import SshAddress, SshChannel
from tests.support.ports import free_port
from tests.support.sshd import Sshd

pytestmark = pytest.mark.integration


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


def test_an_unknown_host_key_is_refused_with_what_to_do(server):
    server.known_hosts.write_text("")
    error = _failure(server.address())
    assert error.code == "transfer.ssh.hostkey"
    assert "known_hosts" in error.hint
    assert error.exit_code == 3


def test_a_key_that_the_device_does_not_know_is_refused(server):
    (server.directory / "authorized_keys").write_text("")
    error = _failure(server.address())
    assert error.code == "transfer.ssh.denied"
    assert "Permission denied" in error.problem
    assert "edge-deploy provision device --key" in error.hint


def test_a_port_where_nobody_listens(server):
    error = _failure(server.address(port=free_port()))
    assert error.code == "transfer.ssh.refused"


def test_a_name_that_nobody_knows():
    error = _failure(SshAddress(host="no-such-device.invalid"))
    assert error.code == "transfer.ssh.unreachable"


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
