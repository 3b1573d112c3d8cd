"""Builds over a strict fake of each TensorRT: routes, scales, memory, progress, and every way to fail.

Also plans that give out tensors from inside the network.
"""

import msgspec
import numpy as np
import pytest

from edge.engine.kind import QdqForm
from edge.engine.tensorrt.binding import MessageLog, import_tensorrt
from edge.engine.tensorrt.build.build import build_failure
from edge.engine.tensorrt.inside import build_marked
from edge.engine.tensorrt.plan import split_plan
from edge.errors import CalibrationError, EngineError, OutOfMemoryError
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from tests.support import fake_tensorrt, models
from tests.support.cuda_driver import stand_in
from tests.support.fake_gpu import DESKTOP, ORIN, build

WEAK = ["8.6.1", "10.3.0", "10.16.1.11"]
ALL = [*WEAK, "11.4.0.106", "rtx-1.7.1.116"]


def report(forms, *args, **options):
    return build(forms, *args, **options).report


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_every_version_builds_every_precision_with_what_it_has(forms, version, precision):
    with fake_tensorrt.used(version) as fake:
        header, _ = split_plan(build(forms, precision, device=DESKTOP).data)
    assert (header.library, header.version) == (fake.name, fake.version)
    expected = {"fp32": "float", "fp16": "float", "int8": "qdq"}[precision]
    assert header.route == f"{expected}-{'weak' if version in WEAK else 'strong'}"
    assert header.max_batch == 3
    assert header.batch is None


@pytest.mark.parametrize(
    ("version", "form"),
    [
        ("8.6.1", QdqForm(weights="float")),
        ("10.3.0", QdqForm()),
        ("11.4.0.106", QdqForm(float_type="float16")),
        ("rtx-1.7.1.116", QdqForm(float_type="float16")),
    ],
)
def test_the_qdq_model_is_written_as_the_library_takes_it(forms, version, form):
    with fake_tensorrt.used(version):
        build(forms, device=DESKTOP)
    assert forms.asked == [form]


@pytest.mark.parametrize("version", WEAK)
@pytest.mark.parametrize("route", ["implicit-cache", "implicit-ranges"])
def test_implicit_ways_use_the_scales_of_the_table(forms, version, route):
    with fake_tensorrt.used(version):
        told = report(forms, route=route)
    assert told["route"] == route
    assert told["why"] == "asked for in the pipeline"
    assert told["scales"]["consumed"] == told["scales"]["given"] > 20
    assert told["scales"]["unused"] == []


TENSOR = "images"
CENTRES = "without the centres of the table: steps are up to twice as large as those of its evidence"
MEANS = "without the corrections of biases by the means of the table"


@pytest.mark.parametrize("route", ["implicit-cache", "implicit-ranges"])
@pytest.mark.parametrize(
    ("is_centred", "means", "told"),
    [(True, (), [CENTRES]), (False, (0.1, 0.2, 0.3), [MEANS]), (True, (0.1, 0.2, 0.3), [CENTRES, MEANS])],
)
def test_what_an_implicit_way_leaves_out_of_a_table_is_told(calibrated, route, is_centred, means, told):
    spec, table = calibrated
    tensors = {**table.tensors, TENSOR: msgspec.structs.replace(table.tensors[TENSOR], means=means)}
    forms = Forms(spec, msgspec.structs.replace(table, centred=is_centred, tensors=tensors))

    with fake_tensorrt.used("10.3.0"):
        implicit, explicit = report(forms, route=route), report(forms, route="qdq-weak")

    assert implicit["why"] == "; ".join(["asked for in the pipeline", *told])
    assert explicit["why"] == "asked for in the pipeline"


def test_a_cache_that_is_refused_is_no_silent_recalibration(forms):
    with (
        fake_tensorrt.used("10.3.0", refuses_cache=True),
        pytest.raises(EngineError, match="did not take the calibration"),
    ):
        build(forms, route="implicit-cache")


def test_a_route_that_the_library_lacks_is_refused_with_those_that_it_has(forms):
    with (
        fake_tensorrt.used("11.4.0.106"),
        pytest.raises(EngineError, match="implicit-cache: this TensorRT has qdq-strong"),
    ):
        build(forms, route="implicit-cache")


def no_pairs(network, config):
    """As TensorRT 8.6 of a depthwise convolution between Q/DQ pairs, and 10.0 to 10.6 of TopK heads."""
    if any(layer.type.name == "QUANTIZE" for layer in network._layers):
        return "Could not find any implementation for node Conv_3"
    return None


@pytest.mark.parametrize(("version", "route"), [("8.6.1", "implicit-cache"), ("10.3.0", "implicit-cache")])
def test_what_cannot_be_built_with_pairs_is_built_by_scales_and_says_so(forms, version, route):
    with fake_tensorrt.used(version, build=no_pairs):
        plan = build(forms)

    assert split_plan(plan.data)[0].route == plan.report["route"] == route
    assert "qdq-weak cannot be built here" in plan.report["why"]
    assert "Could not find any implementation for node Conv_3" in plan.report["why"]


@pytest.mark.parametrize(
    ("version", "precision", "options", "ways"),
    [
        ("10.3.0", "int8", {}, 2),
        ("10.3.0", "int8", {"route": "qdq-weak"}, 1),
        ("10.3.0", "fp16", {}, 1),
        ("11.4.0.106", "int8", {}, 1),  # strongly typed only
        ("rtx-1.7.1.116", "int8", {}, 1),
    ],
)
def test_the_other_way_is_tried_where_there_is_one_and_none_was_asked_for(forms, version, precision, options, ways):
    tried = []

    def nothing(network, config):
        tried.append(network)
        return f"no implementation, try {len(tried)}"

    with fake_tensorrt.used(version, build=nothing), pytest.raises(EngineError, match="no implementation, try 1"):
        build(forms, precision, device=ORIN if "rtx" not in version else DESKTOP, **options)

    assert len(tried) == ways


def test_where_memory_ran_out_the_other_way_is_not_tried(forms):
    tried = []

    def hungry(network, config):
        tried.append(network)
        return "Cuda Runtime (out of memory)"

    with fake_tensorrt.used(build=hungry), pytest.raises(OutOfMemoryError, match="memory ran out"):
        build(forms)

    assert len(tried) == 1


def test_int8_without_a_table_is_refused(calibrated):
    with fake_tensorrt.used(), pytest.raises(CalibrationError, match="without a calibration table"):
        build(Forms(calibrated[0]), route="implicit-cache")


def test_a_table_of_another_model_is_refused(forms):
    forms.without, forms.more = forms.ranges, {"elsewhere": 1.0}
    with fake_tensorrt.used(), pytest.raises(EngineError, match=r'consumes no scale of the table .*"elsewhere"'):
        build(forms, route="implicit-ranges")


def test_a_scale_that_nothing_consumes_is_named(forms):
    forms.more = {"elsewhere": 1.0}
    with fake_tensorrt.used():
        told = report(forms, route="implicit-ranges")
    assert told["scales"]["unused"] == ["elsewhere"]
    assert told["scales"]["given"] - told["scales"]["consumed"] == 1


@pytest.mark.parametrize("amax", [np.inf, np.nan, 0.0])
def test_a_range_that_tensorrt_refuses_is_named(forms, amax):
    forms.more = {next(iter(forms.ranges)): amax}
    with fake_tensorrt.used(), pytest.raises(EngineError, match="refuses the range"):
        build(forms, route="implicit-ranges")


def test_parser_errors_name_their_nodes(forms):
    def errors(model):
        node = model.graph.node[5]
        yield 5, node, "no importer registered"

    for version in ("8.6.1", "10.3.0"):
        with fake_tensorrt.used(version, parser_errors=errors), pytest.raises(EngineError) as raised:
            build(forms, "fp16")
        assert f"TensorRT {version}".lower() in str(raised.value).lower()
        assert 'Sigmoid "' in str(raised.value) or 'Conv "' in str(raised.value) or '"' in str(raised.value)
        assert "no importer registered" in str(raised.value)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Could not find any implementation for node Conv_3", "built nothing: Could not find any implementation"),
        ("NvMapMemAllocInternalTagged: 1075072515 error 12", "memory ran out while TensorRT built"),
        (
            "[virtualMemoryBuffer.cpp] Error Code 2: OutOfMemory (Requested size was 2147483648 bytes.)",
            "memory ran out",
        ),
    ],
)
def test_a_builder_that_returns_none_is_told_with_what_its_logger_said(forms, message, told):
    with fake_tensorrt.used(build=message), pytest.raises(EngineError, match=told):
        build(forms, "fp16")


@pytest.mark.parametrize(
    ("device", "free_mib", "options", "expected"),
    [
        (ORIN, 5000, {}, {"WORKSPACE": 512, "TACTIC_DRAM": 4744}),
        (ORIN, 7900, {}, {"WORKSPACE": 512, "TACTIC_DRAM": 6144}),  # TensorRT's own limit
        (ORIN, 100, {}, {"WORKSPACE": 512, "TACTIC_DRAM": 1}),
        (ORIN, None, {}, {"WORKSPACE": 512}),
        (ORIN, 5000, {"tactic_memory_mib": 1024}, {"WORKSPACE": 512, "TACTIC_DRAM": 1024}),
        (DESKTOP, 5000, {"workspace_mib": 256}, {"WORKSPACE": 256}),
    ],
)
def test_tactics_get_what_is_available_when_the_build_begins(
    forms, handed, monkeypatch, device, free_mib, options, expected
):
    def free_bytes():
        assert not fake.builders  # the builder's own code counts, too
        return None if free_mib is None else free_mib << 20

    monkeypatch.setattr("edge.engine.tensorrt.build.build.available_bytes", free_bytes)
    with fake_tensorrt.used(build=handed) as fake:
        build(forms, "fp16", device=device, **options)
    assert {pool.name: size >> 20 for pool, size in handed.config._pools.items()} == expected


@pytest.mark.parametrize(("free_mib", "skipped"), [(7000, 0), (3000, 1), (2000, 2)])
def test_tactics_that_memory_is_too_small_for_are_counted_and_told_once(forms, monkeypatch, caplog, free_mib, skipped):
    monkeypatch.setattr("edge.engine.tensorrt.build.build.available_bytes", lambda: free_mib << 20)
    with fake_tensorrt.used(tactics_mib=(100, 900, 2500)):
        told = report(forms, "fp16")
    assert told.get("skipped_tactics", 0) == skipped
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == (skipped > 0)


def test_a_build_that_memory_left_no_tactic_for_says_so(forms, monkeypatch):
    monkeypatch.setattr("edge.engine.tensorrt.build.build.available_bytes", lambda: 2 << 30)
    with fake_tensorrt.used(tactics_mib=(900, 2500)), pytest.raises(EngineError, match="any implementation") as raised:
        build(forms, "fp16")
    assert "2 tactics for lack of memory" in raised.value.hint


@pytest.mark.parametrize("version", ALL)
def test_a_plan_is_looked_into_when_its_builder_is_gone(forms, version):
    with stand_in(), fake_tensorrt.used(version) as fake:
        told = report(forms, device=DESKTOP)
    assert told["account"]["by_precision"]
    assert fake.builders_beside_an_engine == 0


def test_a_tactic_is_timed_as_often_as_trtexec_does(forms, handed):
    with fake_tensorrt.used(build=handed):
        build(forms, "fp16")
    assert handed.config.avg_timing_iterations == 8


def test_progress_is_told_where_the_library_tells_it(forms):
    phases = {}
    for version in ("8.6.1", "10.3.0"):
        told = phases[version] = []
        with fake_tensorrt.used(version):
            build(forms, "fp16", on_progress=lambda phase, share, told=told: told.append((phase, share)))
    assert phases["8.6.1"] == [("model", 0.0), ("model", 1.0), ("build", 0.0), ("build", 1.0)]
    shares = [share for phase, share in phases["10.3.0"] if phase == "Building Engine"]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert len(set(shares)) > 4


def test_who_is_told_the_progress_may_end_the_build(forms):
    def stop(phase, share):
        if phase == "Building Engine" and share > 0:
            raise KeyboardInterrupt

    with fake_tensorrt.used(), pytest.raises(KeyboardInterrupt):
        build(forms, "fp16", on_progress=stop)


def test_the_timing_cache_is_kept_per_version_and_device(forms, tmp_path):
    for version in ("8.6.1", "10.3.0"):
        for device in (ORIN, DESKTOP):
            with fake_tensorrt.used(version):
                build(forms, "fp16", cache=tmp_path, device=device)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert len(kept) == 4
    assert kept[0] == "tensorrt-10.3.0-Orin-sm8.7.timing"


def test_timings_made_beside_a_service_are_not_what_a_build_alone_starts_from(forms, tmp_path):
    alone, beside = (tmp_path / f"tensorrt-10.3.0-Orin-sm8.7{end}" for end in (".timing", ".beside.timing"))
    started_from = []

    def look(network, config):
        started_from.append(bytes(config._cache._content))

    with fake_tensorrt.used(build=look) as fake:
        tag = fake.timing_tag
        assert report(forms, "fp16", cache=tmp_path, is_beside=True)["timed_beside_a_service"]
        beside.write_bytes(tag + b"beside")
        build(forms, "fp16", cache=tmp_path, is_beside=True)
        assert not alone.exists()
        beside.write_bytes(tag + b"beside")

        assert "timed_beside_a_service" not in report(forms, "fp16", cache=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [alone.name]
        alone.write_bytes(tag + b"alone")
        build(forms, "fp16", cache=tmp_path, is_beside=True)

    assert started_from == [b"", tag + b"beside", b"", tag + b"alone"]
    assert alone.read_bytes() == tag + b"alone"


def test_a_damaged_timing_cache_is_begun_anew(forms, tmp_path):
    path = tmp_path / "tensorrt-10.3.0-Orin-sm8.7.timing"
    path.write_bytes(b"damaged")
    with fake_tensorrt.used():
        build(forms, "fp16", cache=tmp_path)
    assert path.read_bytes() == b"FAKETIMING 10.3.0 measured"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_costs_the_timing_cache_only(forms, tmp_path):
    (tmp_path / "file").touch()
    with fake_tensorrt.used():
        assert build(forms, "fp16", cache=tmp_path / "file").data


def test_a_fixed_batch_needs_no_profile_and_is_in_the_header(tmp_path):
    spec = inspect_model(models.yolov8(tmp_path / "model.onnx", batch=2))
    with fake_tensorrt.used():
        header, _ = split_plan(build(Forms(spec), "fp16").data)
    assert header.batch == 2
    assert header.inputs[0].shape == (2, 3, 96, 96)


def test_a_dla_core_gets_a_cache_a_fixed_batch_and_the_gpu_beside(forms):
    with fake_tensorrt.used(dla_cores=2):
        plan = build(forms, dla_core=1)
    header, _ = split_plan(plan.data)
    assert (header.route, header.dla_core, header.batch) == ("implicit-cache", 1, 3)
    assert plan.report["dla"]["core"] == 1
    assert "DLA" in plan.report["why"]


@pytest.mark.parametrize(
    ("faults", "options", "precision", "told"),
    [
        ({}, {"dla_core": 0}, "int8", "tensorrt 10.3.0 finds none here"),
        ({"dla_cores": 2}, {"dla_core": 2}, "int8", "this machine has 2"),
        ({"dla_cores": 2}, {"dla_core": 0}, "fp32", "not fp32"),
        ({"dla_cores": 2}, {"dla_core": 0, "route": "qdq-weak"}, "int8", "takes scales, and no Q/DQ pairs"),
    ],
)
def test_what_a_dla_core_cannot_do_is_told_before_the_build(forms, faults, options, precision, told):
    with fake_tensorrt.used(**faults), pytest.raises(EngineError, match=told):
        build(forms, precision, **options)


def test_rtx_builds_for_its_gpus_only(forms):
    with fake_tensorrt.used("rtx-1.7.1.116"), pytest.raises(EngineError, match=r"not for Orin \(SM87\)"):
        build(forms, "fp32", device=ORIN)


def test_layers_that_the_table_keeps_in_float_are_bound_to_it_and_what_reads_them(forms, monkeypatch, caplog):
    graph = load_graph(forms.spec.path)
    kept = next(node for node in graph.nodes if node.op_type == "Conv")
    readers = {node.name for node in graph.nodes if kept.outputs[0] in node.inputs}
    with fake_tensorrt.used() as fake:
        bound = set()
        kind = fake.module.ILayer
        precision = kind.__dict__["precision"]
        monkeypatch.setattr(
            kind,
            "precision",
            property(precision.fget, lambda self, value: (bound.add(self.name), precision.fset(self, value))),
        )
        forms.kept = (kept.name, "nothing")
        build(forms, route="implicit-cache")
    assert bound == {kept.name} | readers  # the node is called as its output is
    assert 'name="nothing"' in caplog.text


def test_a_strongly_typed_network_gets_no_precision_flags(forms, handed):
    with fake_tensorrt.used("10.3.0", build=handed):
        build(forms, "int8", route="qdq-strong")
    assert handed.flags == {"TF32"}


def test_a_warning_that_nobody_has_looked_at_is_told_once_and_a_harmless_one_is_not(caplog):
    log = MessageLog()
    for _ in range(3):
        log.add(2, "(foreignNode) Converting conv activation scales to fp32.")
        log.add(2, "Weights were clamped")
        log.add(3, "Detected 1 inputs")
    assert log.warnings() == ("Weights were clamped",)
    loud = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert loud == ["tensorrt: Weights were clamped"]
    assert log.reason() == "Weights were clamped"


@pytest.mark.parametrize("severity", [3, 4])
def test_an_error_is_not_lost_in_what_a_build_says_of_its_tactics(severity, caplog):
    log = MessageLog()
    log.add(1, "[allocator.cpp] Cuda Runtime (out of memory)")
    for tactic in range(5001):
        log.add(severity, f"Tactic: {tactic:#x} Time: 0.04")
        log.add(2, f"Skipping tactic {tactic}")

    failed = build_failure("m", log)

    assert isinstance(failed, OutOfMemoryError)
    assert "out of memory" in log.reason()
    assert len(log.warnings()) < 2000


def marked(spec, names):
    return build_marked(import_tensorrt(), DESKTOP, spec, spec.path.read_bytes(), names, max_batch=2)


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.4.0.106", "rtx-1.7.1.116"])
def test_tensors_are_given_out_beside_the_output_each_once(spec, version):
    inner = next(node.outputs[0] for node in load_graph(spec.path).nodes if node.op_type == "Conv")
    with fake_tensorrt.used(version):
        header, content = marked(spec, [inner, spec.output_name, inner])
    assert [one.name for one in header.outputs] == [spec.output_name, inner]
    assert header.precision == "fp32"
    assert content


def test_a_name_that_is_none_is_refused(spec):
    with fake_tensorrt.used(), pytest.raises(EngineError, match='no tensor "nothing"'):
        marked(spec, ["nothing"])


def test_a_build_that_fails_is_told_with_its_reason(spec):
    with fake_tensorrt.used(build="no implementation"), pytest.raises(EngineError, match="built nothing: no impl"):
        marked(spec, [])
