"""The SBOM keeps to CycloneDX 1.6 by the format's own schema, and is the same for the same release."""

import hashlib
import json

import pytest

from edge.bundle.sbom import Library, ModelCard, make_sbom, make_software_sbom
from edge.deploy.packing.contents import device_software, tools
from edge.deploy.provision.facts import ENVIRONMENTS, read_lock
from edge.deploy.provision.wheels import WheelSet

CARD = ModelCard(
    name="yolo11s",
    sha256="a" * 64,
    family="yolov8",
    inputs="images, 640x640 px, letterboxed, rgb",
    outputs="boxes with scores of 80 classes",
    precision="int8",
    calibration_sha256="b" * 64,
    dataset_sha256="c" * 64,
    dataset_images=128,
    method="auto",
    metrics=(("mAP50-95", "float", 0.3353), ("mAP50-95", "int8", 0.3348)),
    author="Ultralytics",
    license="AGPL-3.0",
    license_stated_by="model file",
)
BARE = ModelCard(name="m", sha256="a" * 64, family="yolox", inputs="i", outputs="o", precision="fp16")
NUMPY = Library(name="numpy", version="2.2.6", file="numpy-2.2.6-cp310.whl", sha256="f" * 64, supplier="NumPy")
DEVICES = {
    "aarch64-cp310": (NUMPY, Library(name="edge-deploy", version="0.1.0", requires=("numpy",))),
    "x86_64-cp311": (Library(name="numpy", version="2.4.6", file="numpy-2.4.6-cp311.whl", sha256="0" * 64),),
}


def software(devices=DEVICES):
    return make_software_sbom(made_at="2026-11-22T21:50:42Z", devices=devices)


def made(card=CARD, **changes):
    values = {
        "name": "gates",
        "made_at": "2026-11-22T21:50:42Z",
        "files": {"pipeline.yaml": "d" * 64, "golden.json": "e" * 64},
        "software": software(),
        "tools": {"edge-deploy": "0.1.0", "numpy": "1.26.4"},
    }
    return make_sbom(card, **{**values, **changes})


def real():
    """What devices have, as a release says it."""
    lock = read_lock()
    return make_software_sbom(made_at=lock.made_at, devices=device_software(lock)).content


def model_in(bom):
    return next(one for one in bom["components"] if one["type"] == "machine-learning-model")


def complaint(document: str):
    from cyclonedx.schema import SchemaVersion  # a second of imports
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(document)


def test_it_keeps_to_the_schema_of_the_format():
    of_models = [made(), made(BARE), made(files={}, tools={}), made(tools=tools("openvino 2026.4"))]
    for document in (*of_models, software({}).content, real()):
        assert complaint(document.decode()) is None


@pytest.mark.parametrize("document", [made(), real()])
def test_references_within_it_lead_somewhere_and_none_is_given_twice(document):
    bom = json.loads(document)
    given = [one["bom-ref"] for one in (bom["metadata"]["component"], *bom["components"])]
    asked = {ref for one in bom["dependencies"] for ref in (one["ref"], *one["dependsOn"])}
    models = [one for one in bom["components"] if one["type"] == "machine-learning-model"]
    asked |= {one["ref"] for model in models for one in model["modelCard"]["modelParameters"]["datasets"]}
    asked |= {ref for one in bom.get("compositions", []) for ref in one["assemblies"]}

    assert len(given) == len(set(given))
    assert len(bom["dependencies"]) == len({one["ref"] for one in bom["dependencies"]})
    assert asked <= set(given)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_it_names_every_package_of_a_device_in_its_version_with_its_hash_and_supplier(environment):
    bom = json.loads(real())
    components = {one["bom-ref"]: one for one in bom["components"]}
    needs = {one["ref"]: one["dependsOn"] for one in bom["dependencies"]}
    here = {components[ref]["name"]: components[ref] for ref in needs[f"device:{environment}"]}
    wheels = {one.name: one for one in read_lock().environments[environment] if one.use != "install"}

    assert here.keys() - wheels.keys() == {"edge-deploy", *(["pycuda"] if "mako" in wheels else [])}
    for name, wheel in wheels.items():
        assert here[name]["version"] == wheel.version
        assert here[name]["hashes"] == [{"alg": "SHA-256", "content": wheel.sha256}]
        assert here[name]["supplier"]["name"]
        assert here[name]["licenses"][0]["license"]["name"]
    assert len(here["edge-deploy"]["hashes"][0]["content"]) == 64
    assert f"device:{environment}" in needs["software"]
    assert {"numpy", "protobuf"} <= {components[ref]["name"] for ref in needs[here["onnx"]["bom-ref"]]}


def test_the_document_of_a_release_names_that_of_the_software_by_its_number_and_hash():
    devices = software()
    (link,) = json.loads(made())["metadata"]["component"]["externalReferences"]

    number = json.loads(devices.content)["serialNumber"].removeprefix("urn:uuid:")
    assert link["url"] == f"urn:cdx:{number}/1"
    assert link["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(devices.content).hexdigest()}]


def test_it_names_edge_deploy_by_the_hash_with_which_it_is_installed(tmp_path, monkeypatch):
    from edge.deploy.provision import wheels as gathering
    from tests.support.wheels import device_facts, little_lock, little_wheel

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached = tmp_path / "cache/edge-deploy/wheels"
    cached.mkdir(parents=True)
    lock = little_lock([little_wheel(cached, "pip", "26.0")])
    monkeypatch.setattr(gathering, "read_lock", lambda: lock)
    gathered: WheelSet = gathering.gather_wheels(device_facts())

    ours = next(one for one in json.loads(real())["components"] if one["name"] == "edge-deploy")

    assert ours["hashes"][0]["content"] == gathered.digests[ours["purl"].rpartition("=")[2]]


def test_pycuda_which_is_compiled_by_who_deploys_has_the_hash_of_its_source():
    pycuda = next(one for one in json.loads(real())["components"] if one["name"] == "pycuda")

    assert "compiled by who deploys" in pycuda["description"]
    assert len(pycuda["externalReferences"][0]["hashes"][0]["content"]) == 64


def test_it_says_when_and_by_what_it_was_made_how_the_model_was_quantized_and_what_that_cost():
    bom = json.loads(made())
    model = model_in(bom)

    assert bom["metadata"]["timestamp"] == "2026-11-22T21:50:42Z"
    assert {one["name"] for one in bom["metadata"]["tools"]["components"]} == {"edge-deploy", "numpy"}
    assert model["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert {one["name"]: one["value"] for one in model["properties"]} == {
        "edge:precision": "int8",
        "edge:calibration:method": "auto",
        "edge:license:stated-by": "model file",
    }
    assert model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"] == [
        {"type": "mAP50-95", "slice": "float", "value": "0.3353"},
        {"type": "mAP50-95", "slice": "int8", "value": "0.3348"},
    ]


def test_the_model_has_its_author_and_license_and_a_license_that_nobody_states_is_unknown():
    stated, bare = model_in(json.loads(made())), model_in(json.loads(made(BARE)))

    assert (stated["supplier"], stated["licenses"]) == (
        {"name": "Ultralytics"},
        [{"license": {"name": "AGPL-3.0"}}],
    )
    assert "supplier" not in bare
    assert bare["licenses"] == [{"license": {"name": "unknown"}}]
    assert {"name": "edge:license:stated-by", "value": "nobody"} in bare["properties"]


def test_the_same_release_has_the_same_document_and_another_one_another_number():
    assert made() == made()
    assert real() == real()
    assert json.loads(made())["serialNumber"] != json.loads(made(name="other"))["serialNumber"]
