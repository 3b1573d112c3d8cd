"""`edge-deploy provision` for many machines at once: in waves, with a plan, a report, and nothing sent twice."""

import json
import platform
import time

import pytest

from edge.device.facts import name_of_host, read_settings
from tests.support.sshd import OverlayDevices, needs_root

pytestmark = [needs_root, pytest.mark.slow(reason="further first installations")]


def results(out: str) -> dict[str, dict[str, object]]:
    events = [json.loads(line) for line in out.splitlines()]
    return {event["target"]: event for event in events if event["phase"] == "result"}


def test_fifty_machines_are_planned_in_one_command_and_nothing_is_written(tmp_path, person):
    with OverlayDevices(tmp_path / "site", 50) as devices:
        began_s = time.monotonic()
        done = person(devices, "site=north", "--plan")
        print(f"50 plans on one machine: {time.monotonic() - began_s:.1f} s")

        assert done.return_value == 10, done.stderr
        assert done.stdout.count("planned in") == 50
        assert "d-00 and 49 more:\n  create folder /etc/edge-deploy\n" in done.stdout
        assert done.stdout.count("create user edge-deploy") == 1
        assert "0 of 50 targets done; 50 planned" in done.stderr
        assert not any((devices.root(name) / "etc/edge-deploy").exists() for name in devices.names)


def test_machines_are_made_devices_in_waves_and_what_they_have_is_not_sent_again(tmp_path, person, software):
    whole = sum(path.stat().st_size for path in (tmp_path / "cache/edge-deploy/wheels").iterdir())
    with OverlayDevices(tmp_path / "site", 3) as devices:
        first = person(devices, "all", "--json", wave='canary = ["d-02"]\nsteps = ["100%"]', missing=["gone"])

        ended = results(first.stdout)
        assert first.return_value == 11, first.stderr
        assert "wave of 1: d-02" in first.stderr
        assert next(iter(ended)) == "d-02"
        assert {name: one["event"] for name, one in ended.items()} == {
            **dict.fromkeys(devices.names, "changed"),
            "gone": "unreachable",
        }
        assert all(ended[name]["bytes"] >= whole for name in devices.names)
        installed = devices.run("d-01", "ls /opt/edge/lib/python3*/site-packages; ls /var/cache/edge-deploy/wheels")
        assert "numpy-2.0.dist-info" in installed

        laid_over = "restart edge-software.service"  # what releases bring, over what is installed now
        assert devices.run("d-01", "cat /systemctl.log").splitlines().count(laid_over) == 1

        again = person(devices, "all", "--json")
        assert again.return_value == 0, again.stderr
        assert {(one["event"], one["bytes"]) for one in results(again.stdout).values()} == {("unchanged", 0)}

        software()  # as when edge-deploy is newer and its libraries are the same
        update = person(devices, "all", "--json")
        sent = [one["bytes"] for one in results(update.stdout).values()]
        print(f"first provision {whole} bytes of wheels; update {sent[0]} bytes each")
        assert update.return_value == 0, update.stderr
        assert max(sent) < 2_000 < whole / 100
        assert devices.run("d-01", "cat /systemctl.log").splitlines().count(laid_over) == 2


def test_a_machine_where_something_is_in_the_way_stops_the_rest_and_a_resumed_one_leaves_out_who_is_done(
    tmp_path, person
):
    with OverlayDevices(tmp_path / "site", 3) as devices:
        blocker = devices.root("d-01") / "etc/sudoers.d/edge-deploy"
        blocker.write_text("# mine\n")
        order = 'canary = ["d-00"]\nsteps = [1, "100%"]\nmax_failed = 0'

        first = person(devices, "all", wave=order)

        assert first.return_value == 11
        assert "d-00  changed" in first.stdout
        told = "verify.provision: /etc/sudoers.d/edge-deploy is there and was not written"
        assert (told in first.stdout, first.stderr.count("/etc/sudoers.d")) == (True, 0)
        assert not (devices.root("d-02") / "etc/edge-deploy").exists()

        blocker.unlink()
        second = person(devices, "all", "--resume", wave=order)

        assert second.return_value == 0, second.stderr
        assert "1 of 3 targets are done already" in second.stderr
        assert "d-00" not in second.stdout


def test_a_machine_where_a_later_step_fails_is_told_of_those_that_were_done(tmp_path, person):
    with OverlayDevices(tmp_path / "site", 1) as devices:
        systemctl = devices.root("d-00") / "usr/local/bin/systemctl"
        systemctl.write_text(systemctl.read_text().replace("in\n", 'in\n  *"quiet enable"*) exit 1 ;;\n', 1))

        failed = person(devices, "d-00")

        assert failed.return_value == 1, failed.stderr
        assert "steps were done, and run it again when this is mended" in failed.stdout
        assert devices.run("d-00", "ls /opt/edge/bin").split()
        assert "restart --no-block edge-software.service" in devices.run("d-00", "cat /systemctl.log").splitlines()


def test_a_provision_that_was_killed_after_its_switch_is_made_up_for_by_the_next(tmp_path, person):
    with OverlayDevices(tmp_path / "site", 1) as devices:
        systemctl = devices.root("d-00") / "usr/local/bin/systemctl"
        whole = systemctl.read_text()
        systemctl.write_text(whole.replace("in\n", 'in\n  *"quiet enable"*) kill -9 $PPID ;;\n', 1))
        assert person(devices, "d-00").return_value == 1
        assert "edge-software" not in devices.run("d-00", "grep start /systemctl.log || true")
        systemctl.write_text(whole)

        planned = person(devices, "d-00", "--plan")
        again = person(devices, "d-00")

        assert "lay what releases bring over /opt/edge-" in planned.stdout
        assert again.return_value == 0, again.stderr
        assert devices.run("d-00", "cat /systemctl.log").splitlines().count("restart edge-software.service") == 1
        assert "nothing to change" in person(devices, "d-00").stdout


def test_a_start_of_edge_software_that_fails_is_said_and_made_up_for_by_the_next_provision(tmp_path, person):
    with OverlayDevices(tmp_path / "site", 1) as devices:
        systemctl = devices.root("d-00") / "usr/local/bin/systemctl"
        whole = systemctl.read_text()
        systemctl.write_text(whole.replace("in\n", "in\n  restart*) echo no memory >&2; exit 1 ;;\n", 1))

        first = person(devices, "d-00")
        systemctl.write_text(whole)
        second, third = person(devices, "d-00"), person(devices, "d-00")

        assert first.return_value == 0, first.stderr
        assert "edge-software.service has failed: no memory; run provision again" in first.stdout + first.stderr
        assert "lay what releases bring over" in second.stdout
        assert "nothing to change" in third.stdout


def test_a_device_that_is_called_by_its_address_is_named_after_its_host_or_as_before(tmp_path, person):
    with OverlayDevices(tmp_path / "site", 1) as devices:
        config = devices.ssh_config
        config.write_text(config.read_text().replace("Host d-00\n", "Host d-00 192.168.1.40\n"))
        settings = devices.root("d-00") / "etc/edge-deploy/device.toml"
        own = name_of_host(platform.node())

        planned = person(devices, "root@192.168.1.40", "--ssh-config", config, "--plan")
        made = person(devices, "root@192.168.1.40", "--ssh-config", config)

        assert f"its name becomes {own}" in planned.stderr
        assert made.return_value == 0, made.stderr
        assert read_settings(settings).name == own

        assert person(devices, "192.168.1.40", "--ssh-config", config, "--name", "gate-40").return_value == 0
        assert person(devices, "192.168.1.40", "--ssh-config", config, "--channel", "beta").return_value == 0
        assert (read_settings(settings).name, read_settings(settings).channels) == ("gate-40", ("beta",))


def test_undo_goes_over_the_fleet_as_well(tmp_path, person):
    with OverlayDevices(tmp_path / "site", 2) as devices:
        assert person(devices, "all").return_value == 0
        planned = person(devices, "all", "--undo", "--plan")
        undone = person(devices, "all", "--undo")

        assert (planned.return_value, undone.return_value) == (10, 0), undone.stderr
        assert "d-00 and 1 more:" in planned.stdout
        assert not any((devices.root(name) / "etc/edge-deploy").exists() for name in devices.names)
        assert not any((devices.root(name) / "var/cache/edge-deploy").exists() for name in devices.names)
