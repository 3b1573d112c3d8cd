"""What was promised of the accuracy, held against what was measured; what was measured becomes evidence."""

from __future__ import annotations

import msgspec

from edge.calibrate.table import CalibrationTable, Evidence
from edge.errors import VerificationError
from edge.quantize.forms import Forms
from edge.quantize.make_table.options import MaxDrop
from edge.quantize.make_table.proof import Proof

__all__ = ["Promise"]


class Promise:
    """No more than `max_drop` is lost; None: nothing is promised."""

    def __init__(self, max_drop: MaxDrop | None) -> None:
        self._max_drop = max_drop

    def is_kept(self, proof: Proof) -> bool:
        """Return whether `proof` shows no larger drop; chance is no excuse."""
        return self._max_drop is None or proof.drop <= self._max_drop.points_of(proof.float_)

    def with_evidence(self, table: CalibrationTable, forms: Forms, proof: Proof) -> CalibrationTable:
        """Return `table`, of which `forms` are, with what was measured.

        Raises:
            VerificationError: if that breaks the promise.
        """
        if not self.is_kept(proof):
            raise VerificationError(
                f"{forms.spec.name}: INT8 loses {proof.drop:.2f} mAP50-95 points (float {100 * proof.float_:.2f}, INT8 "
                f"{100 * proof.int8:.2f}, standard error {100 * (proof.uncertainty or 0.0):.2f}) on {proof.images} "
                f"images that no range comes from; promised were at most {self._max_drop}, so nothing was written",
                hint="run this model in fp16, or give more images like those of the cameras, or allow a larger drop",
            )
        evidence = Evidence(
            metric=proof.metric,
            images=proof.images,
            float_=round(proof.float_, 5),
            int8=round(proof.int8, 5),
            int8_mac_share=round(forms.mac_share_int8, 4),
            uncertainty=None if proof.uncertainty is None else round(proof.uncertainty, 5),
        )
        return msgspec.structs.replace(table, evidence=evidence)
