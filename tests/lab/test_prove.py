"""`edge-deploy prove` on a booted device: under systemd, and inside the sandbox of the service."""

import json

from tests.lab.provisioning import edge_deploy


def test_a_device_proves_itself_under_systemd_and_as_the_service(provisioned, tmp_path):
    words = ("prove", provisioned.name, "--admin", "admin", "--ssh-config", str(provisioned.ssh_config))
    done = edge_deploy(*words, timeout_s=1200, cwd=tmp_path)

    proof = json.loads((tmp_path / f"edge-proof-{provisioned.name}.json").read_text())
    steps = {(one["name"], one["as_service"]): one["rows"] for one in proof["steps"]}
    told = f"{done.stdout}{done.stderr}"
    assert {row["name"]: row["verdict"] for row in steps["unit", False]} == {
        "start": "proven",
        "kill": "proven",
        "watchdog": "proven",
        "no rollback": "proven",
    }, told
    assert {row["name"]: row["verdict"] for row in steps["facts", False]}["device"] == "told", told
    for name in ("facts", "nodes", "cuda", "video"):
        assert "as the service" in {row["name"] for row in steps[name, True]}, told
    assert [row for rows in steps.values() for row in rows if row["verdict"] == "fails"] == [], told
    assert done.returncode in (0, 10)
    # Nothing of it is left.
    assert provisioned.run("systemctl list-units --all --no-legend 'edge-prove-*'").stdout.strip() == ""


def test_the_unit_is_proven_beside_the_service_whose_files_stay_its_own(site):
    def files():
        return site.device.run("ls -di /run/edge-* /var/lib/edge-* /run/edge-runtime/.*.lock").stdout

    run, before = site.invocation(), files()
    step = "folder=$(mktemp -d) && /opt/edge/bin/python -Im edge.runtime.prove.child unit $folder"
    rows = [json.loads(line) for line in site.device.run(step, timeout_s=240).stdout.splitlines()]

    assert {row["name"]: row["verdict"] for row in rows} == dict.fromkeys(
        ("start", "kill", "watchdog", "no rollback"), "proven"
    ), rows
    assert (site.invocation(), files()) == (run, before)
    assert json.loads(site.device.run("cat /run/edge-runtime/health.json").stdout)["invocation"] == run


def test_doctor_says_what_the_sandbox_of_the_service_takes_away(provisioned):
    def as_the_service():
        done = provisioned.run("/opt/edge/bin/edge-runtime doctor --json", check=False)
        return json.loads(done.stdout)["as the service"]

    assert as_the_service()["here"] is True

    folder = "/etc/systemd/system/edge-runtime.service.d"
    hidden = "[Service]\nInaccessiblePaths=/etc/edge-deploy/device.toml\n"
    provisioned.run(f"mkdir -p {folder}; cat > {folder}/99-test.conf", content=hidden)

    found = as_the_service()
    assert found["here"] is False
    assert "device: not as the service" in found["detail"]
