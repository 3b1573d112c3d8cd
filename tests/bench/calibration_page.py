"""The figures of calibration as a part of the page."""

from tests.bench.calibration import ORT_IMAGES


def render_int8(results):
    if not results:
        return
    yield from ("## INT8", "", *_accuracy(results), *_speed(results), *_costs(results))


def _accuracy(results):
    yield from (
        "### Accuracy and time of a calibration",
        "",
        "mAP50-95 (and its change in points) on images that calibration has not seen; MACs in INT8; seconds of the",
        "whole command. `auto` searches; the other methods choose every range by one rule, and leave nothing in float.",
        "",
        "| model | | mAP50-95 | change | MACs in INT8 | s |",
        "|---|---|---|---|---|---|",
    )
    for one in results:
        exact = one["accuracy"]["fp32"]["map50_95"]
        yield f"| {one['model']} | fp32 | {exact:.4f} | | | |"
        for method, seconds in one["calibration_s"].items():
            found = one["accuracy"][method]
            change = 100 * (found["map50_95"] - exact)
            share = f"{found['int8_mac_share']:.1%}"
            yield f"| | {method} | {found['map50_95']:.4f} | {change:+.2f} | {share} | {seconds:.1f} |"
        if one["nncf"] is not None:
            change = 100 * (one["nncf"]["map50_95"][0] - exact)
            yield f"| | NNCF PTQ | {one['nncf']['map50_95'][0]:.4f} | {change:+.2f} | | {one['nncf']['seconds']:.1f} |"
    yield ""


def _speed(results):
    yield from (
        "### Speed on this CPU",
        "",
        "Engine alone, four rows in flight, ms per frame. What TensorRT makes of the same table on a Jetson is not",
        "known from these figures.",
        "",
        "| model | fp32 | INT8 (mse, all) | times faster | INT8 (auto) | times faster |",
        "|---|---|---|---|---|---|",
    )
    for one in results:
        ms = one["ms"]
        yield (
            f"| {one['model']} | {ms['fp32']:.2f} | {ms['mse']:.2f} | {ms['fp32'] / ms['mse']:.2f} "
            f"| {ms['auto']:.2f} | {ms['fp32'] / ms['auto']:.2f} |"
        )
    yield ""


def _costs(results):
    yield from (
        "### Cost of observing",
        "",
        "Forward passes with every needed tensor given out, and the same with histograms and peaks counted; the budget",
        f"is 1.5. ONNX Runtime's calibrators on {ORT_IMAGES} of the images (they keep all tensors of each), seconds",
        "per image; ours is the whole command with `mse`.",
        "",
        "| model | images | forward s | observed s | ratio | ours s per image | ORT MinMax | Percentile | Entropy |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    for one in results:
        spent, ort = one["observing"], one["ort_s_per_image"]
        yield (
            f"| {one['model']} | {one['images']} | {spent['forward'] / 2:.1f} | {spent['observe'] / 2:.1f} "
            f"| **{spent['observe'] / spent['forward']:.2f}** | {one['calibration_s']['mse'] / one['images']:.3f} "
            f"| {ort['MinMax']:.3f} | {ort['Percentile']:.3f} | {ort['Entropy']:.3f} |"
        )
    yield ""
