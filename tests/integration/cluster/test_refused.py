"""Workers that do not fit are refused by name; schedulers that are not there, or go, are told of; exit codes."""

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from edge.version import __version__
from tests.support.command_line import start, typed
from tests.support.dask_cluster import ROOT, DaskCluster
from tests.support.manifests import make_certificates
from tests.support.ports import free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow(reason="further clusters")

EVALUATE = ("evaluate", "m.onnx", "--images", "images", "--labels", "labels", "--json")


def spread(place, cluster, *options, expected=0, env=None):
    out, err = typed(place, *EVALUATE, "--cluster", cluster.address, *options, expected=expected, env=env)
    return json.loads(out) if expected == 0 else err


@contextlib.contextmanager
def calibration(origin, out, *options, until="observe"):
    """A command at work, which has begun a stage."""
    process = start(origin, "calibrate", "m.onnx", "--images", "images", "-o", out, *options)
    try:
        while until not in (line := process.stderr.readline()):
            assert line
        yield process
    finally:
        process.kill()
        process.communicate()


def copy_of_edge(folder, **changed):
    shutil.copytree(ROOT / "edge", folder / "edge", ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in changed.items():
        (folder / "edge" / f"{name}.py").write_text(content)
    return {"PYTHONPATH": str(folder)}


def test_a_worker_of_another_version_is_refused_by_name(origin, tmp_path, empty_cluster):
    version = (ROOT / "edge/version.py").read_text().replace(__version__, "9.9.9")
    empty_cluster.start_worker()
    empty_cluster.start_worker(env=copy_of_edge(tmp_path, version=version))

    told = spread(origin, empty_cluster, expected=2)

    assert "error: worker tcp://127.0.0.1:" in told
    assert f"on {socket.gethostname()} cannot take part: code " in told
    assert "edge-deploy 9.9.9 there, " in told
    assert f"edge-deploy {__version__} here" in told


def test_a_worker_of_the_same_version_and_other_code_is_refused(origin, tmp_path, empty_cluster):
    digest = (ROOT / "edge/digest.py").read_text() + "\n"
    empty_cluster.start_worker(env=copy_of_edge(tmp_path, digest=digest))

    assert "cannot take part: code " in spread(origin, empty_cluster, expected=2)


def test_a_worker_without_edge_deploy_is_refused(origin, tmp_path, empty_cluster):
    (tmp_path / "edge.py").touch()
    empty_cluster.start_worker(env={"PYTHONPATH": str(tmp_path)})

    told = spread(origin, empty_cluster, expected=2)

    assert "cannot take part: it has not this edge-deploy: " in told
    assert "No module named 'edge.quantize'" in told


def test_a_worker_that_computes_otherwise_is_refused_unless_that_is_asked_for(origin, empty_cluster):
    empty_cluster.start_worker(env={"ONEDNN_MAX_CPU_ISA": "AVX2"})

    told = spread(origin, empty_cluster, expected=2)
    allowed = spread(origin, empty_cluster, "--mixed-cpus")

    assert "cannot take part: ONEDNN_MAX_CPU_ISA=AVX2 there, no more here" in told
    assert "--mixed-cpus" in told
    assert allowed["images"] == 24


def test_one_that_comes_later_and_does_not_fit_is_refused_by_name_too(origin, tmp_path, empty_cluster):
    empty_cluster.start_worker()
    with calibration(origin, tmp_path / "t.json", "--cluster", empty_cluster.address) as process:
        empty_cluster.start_worker(env={"ONEDNN_MAX_CPU_ISA": "AVX2"})
        told = process.communicate(timeout=300)[1]

    assert process.returncode == 2, told
    assert "error: worker tcp://127.0.0.1:" in told
    assert "ONEDNN_MAX_CPU_ISA=AVX2 there" in told
    assert not (tmp_path / "t.json").exists()


def test_nothing_is_there(origin):
    address = f"tcp://127.0.0.1:{free_port()}"

    assert address in typed(origin, *EVALUATE, "--cluster", address, expected=3)[1]


def test_something_else_is_there(origin):
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer_as_a_web_server, args=(server,), daemon=True).start()
        told = typed(origin, *EVALUATE, "--cluster", f"tcp://127.0.0.1:{server.getsockname()[1]}", expected=3)[1]

    assert "no Dask scheduler answers there" in told


def _answer_as_a_web_server(server):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_the_scheduler_goes_in_the_middle(origin, tmp_path, empty_cluster):
    empty_cluster.start_worker()
    out = tmp_path / "t.json"
    with calibration(origin, out, "--cluster", empty_cluster.address, until="search") as process:
        empty_cluster.scheduler.kill()
        told = process.communicate(timeout=60)[1]

    assert process.returncode == 3, told
    assert "the scheduler is gone" in told
    assert "Traceback" not in told
    assert not out.exists()


def test_a_scheduler_with_certificates_wants_them_from_everybody(origin, tmp_path):
    made = make_certificates(tmp_path / "certificates", host="127.0.0.1")
    files = {"ca": made.ca, "cert": made.certificate, "key": made.key}
    options = [part for name, path in files.items() for part in (f"--tls-{name}{'-file' * (name == 'ca')}", str(path))]
    names = {"ca": "CA_FILE", "cert": "CLIENT__CERT", "key": "CLIENT__KEY"}
    env = {f"DASK_DISTRIBUTED__COMM__TLS__{names[name]}": str(path) for name, path in files.items()}
    cluster = DaskCluster(tmp_path / "dask", *options, listen="tls://127.0.0.1:0")
    try:
        cluster.start_worker()

        assert cluster.address.startswith("tls://")
        assert spread(origin, cluster, env=env)["images"] == 24
        assert "distributed.comm.tls" in spread(origin, cluster, expected=2)
        bare = typed(origin, *EVALUATE, "--cluster", cluster.address.replace("tls:", "tcp:"), expected=3)[1]
        assert cluster.address.replace("tls:", "tcp:") in bare
    finally:
        cluster.close()


@pytest.mark.parametrize("stage", ["observe", "search"])
def test_ctrl_c_ends_it_and_leaves_nothing(origin, tmp_path, stage):
    with calibration(origin, tmp_path / "t.json", "--workers", "2", until=stage) as process:
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=60)[1]

    assert process.returncode == 130, told
    assert "Traceback" not in told
    wait_until(lambda: not members_of(process.pid), what="all processes have ended")
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_when_it_is_killed_its_workers_end_with_it(origin, tmp_path, how):
    with calibration(origin, tmp_path / "t.json", "--workers", "2") as process:
        assert len(members_of(process.pid)) >= 3
        process.send_signal(getattr(signal, how))
        process.communicate(timeout=60)

    wait_until(lambda: not members_of(process.pid), what="all processes have ended")


def test_workers_of_this_machine_listen_to_nobody_but_their_own(origin, tmp_path):
    with calibration(origin, tmp_path / "t.json", "--workers", "2") as process:
        addresses = listening(members_of(process.pid))
        greetings = {address: plain_greeting(*address) for address in addresses}
        process.terminate()
        process.communicate(timeout=60)

    assert len(addresses) >= 3  # the scheduler and two workers, at least
    assert {host for host, _ in addresses} == {"127.0.0.1"}
    # A Dask server greets first; of these nobody says a word to one without their certificate, or only HTTP's 404.
    assert all(said == b"" or said.startswith(b"HTTP/1.1 404 ") for said in greetings.values()), greetings


def members_of(group):
    found = []
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split() if entry.isdigit() else None
        except OSError:
            continue
        if fields and int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry))
    return found


def listening(processes):
    """Return (host, port) of the TCP sockets at which processes listen, as the kernel tells them."""
    inodes = set()
    for process in processes:
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            try:
                inodes.add(os.readlink(f"/proc/{process}/fd/{descriptor}"))
            except OSError:
                continue
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{processes[0]}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                host, port = fields[1].split(":")
                words = [bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8)]
                found.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def plain_greeting(host, port):
    """Return what a server says to one who speaks no TLS."""
    with socket.create_connection((host, port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.settimeout(60)
        try:
            return connection.recv(64)
        except OSError:
            return b""
