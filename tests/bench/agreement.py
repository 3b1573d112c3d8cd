"""How far INT8 by a table is from its float model on some images, with standard errors; prints one line of JSON.

python -m tests.bench.agreement MODEL TABLE IMAGES [LABELS]

`agreement` is mAP50-95 with the float model's own detections of score 0.25 and more as the truth; `sure` and `best` are
the errors that the search goes by (docs/adr/0003), each image counting the same.
`labels` is mAP50-95 of float and of INT8 with LABELS, and the standard error of the difference.
"""

import json
import statistics
import sys
from pathlib import Path

from edge.calibrate.lint import usable_table
from edge.engine.kind import EngineRequest, QdqForm, build_and_load, load_kind
from edge.evaluate.coco_map import Accumulator, error_of_difference
from edge.evaluate.labels import open_labels
from edge.evaluate.layers import best_candidates, compare_candidates, error_of_best
from edge.media.images import list_images
from edge.model.inspect import inspect_model
from edge.quantize.feed import coco_detector, run_stills
from edge.quantize.forms import Forms
from edge.types import Precision
from edge.vision.heads import decode_output, head_of
from tests.bench.others import _sure

BEST, LOWEST, SURE = 64, 1e-5, 0.05


def main() -> None:
    model, table, images, *more = map(Path, sys.argv[1:])
    spec, kind = inspect_model(model), load_kind("openvino")
    forms = Forms(spec, usable_table(table, spec))
    engines = [
        build_and_load(kind, forms, EngineRequest(precision=precision, max_batch=1, options=kind.options_type()))
        for precision in (Precision.FP32, Precision.INT8)
    ]
    paths, detector = list_images(images), coco_detector(spec)
    labels, labelled = (
        (open_labels(more[0], spec.labels, images=images) if more else None),
        (Accumulator(), Accumulator()),
    )
    head = head_of(spec, is_multi_label=True)
    itself, int8, parities, best, objects = Accumulator(), Accumulator(), [], [], 0
    for path, *ran in zip(paths, *(run_stills(paths, engine) for engine in engines), strict=True):
        exact, found = (detector.detect(out, placed)[0] for placed, out in ran)
        truth = _sure(exact)
        objects += len(truth.class_id)
        itself.add(path.stem, exact, truth)
        int8.add(path.stem, found, truth)
        if labels is not None:
            given = labels.truth(path.stem, ran[0][0][0].source)
            for accumulator, one in zip(labelled, (exact, found), strict=True):
                accumulator.add(path.stem, one, given)
        one, other = (decode_output(out, head, score_threshold=LOWEST) for _, out in ran)
        best.append(error_of_best(best_candidates(one, BEST), other, spec.family))
        one, other = (decode_output(out, head, score_threshold=SURE) for _, out in ran)
        parities.append(compare_candidates(one, other, spec.family))
    weight = statistics.fmean(parity.weight for parity in parities)
    sure = [parity.error_for(weight) for parity in parities]
    told = {
        "images": len(paths),
        "objects": objects,
        "int8_mac_share": round(forms.qdq_model(QdqForm()).mac_share_int8, 4),
        "agreement": [int8.result().map50_95, error_of_difference(itself, int8)],
        "sure": _mean(sure),
        "best": _mean(best),
    }
    if labels is not None:
        told["labels"] = [*(one.result().map50_95 for one in labelled), error_of_difference(*labelled)]
    print(json.dumps({key: [round(x, 4) for x in one] if isinstance(one, list) else one for key, one in told.items()}))


def _mean(errors):
    return [statistics.fmean(errors), statistics.stdev(errors) / len(errors) ** 0.5]


if __name__ == "__main__":
    main()
