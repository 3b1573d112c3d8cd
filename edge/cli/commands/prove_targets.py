"""`edge-deploy prove`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.bundle.sign import fingerprint, sign
from edge.cli.commands.prove import proof_lines
from edge.cli.commands.provision import admins_of, ssh_config_option
from edge.cli.fleet import Chosen, show_answers, targets_argument
from edge.cli.paths import READ_FILE, command
from edge.cli.run_command import tell
from edge.config.targets import Target
from edge.deploy.provision import provision as over_ssh
from edge.roofline.proof import Proof, encode_proof, worst_code
from edge.writing import write_whole

__all__ = ["prove"]

_NAMESPACE = "edge-proof"


@command("""
  edge-deploy prove gate-01
  edge-deploy prove gate-01 --admin ubuntu
  edge-deploy prove site=north --json --key ~/.ssh/id_ed25519

\b
What each step is, and where proofs of others are: docs/proofs/README.md""")
@targets_argument
@click.option("--admin", metavar="USER", help="Who logs in; by default as ssh_config says.")
@ssh_config_option
@click.option(
    "--key", type=READ_FILE, metavar="KEY", help="SSH key that signs each file, as edge-proof-TARGET.json.sig."
)
def prove(
    chosen: Chosen,
    admin: str | None,
    ssh_config: Path | None,
    key: Path | None,
    as_json: bool,
) -> int:
    """Prove what works on devices, in at most ten minutes each, and write edge-proof-TARGET.json for each here.

    Runs `edge-runtime prove` there as the administrator; a device has to be provisioned and needs no release. What
    serves there goes on, and is slower meanwhile. Nothing is sent anywhere else.

    Exits with 0 where all that is there is proven, 10 where something is slower or worse than expected, 4 where
    something fails.
    """
    admins = admins_of(chosen, admin, ssh_config)
    if key is not None:
        fingerprint(key)  # before ten minutes are spent
    proofs: dict[str, Proof] = {}

    def keep(target: Target, proof: Proof) -> None:
        write_whole(Path(f"edge-proof-{target.name}.json"), encode_proof(proof))
        proofs[target.name] = proof

    one = over_ssh.prove_over_ssh(admins, keep)
    result = chosen.ask(one)
    show_answers(result, proofs, as_json=as_json, lines_of=proof_lines)
    for name in proofs:
        path = Path(f"edge-proof-{name}.json")
        tell(f"written to {path}")
        if key is not None:
            write_whole(Path(f"{path}.sig"), sign(path.read_bytes(), key, _NAMESPACE))
    return result.exit_code or worst_code(proofs.values())
