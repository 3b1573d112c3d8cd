"""The SBOM keeps to CycloneDX 1.6, as far as what we write is concerned, and is the same for the same release."""

import json

import jsonschema

from edge.bundle.sbom import ModelCard, make_sbom

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
)

# From bom-1.6.schema.json (ECMA-424): the definitions that our documents use, each closed to further keys as there.
HASH = {
    "type": "object",
    "required": ["alg", "content"],
    "additionalProperties": False,
    "properties": {
        "alg": {"enum": ["MD5", "SHA-1", "SHA-256", "SHA-384", "SHA-512"]},
        "content": {"pattern": "^([a-fA-F0-9]{32}|[a-fA-F0-9]{40}|[a-fA-F0-9]{64}|[a-fA-F0-9]{96}|[a-fA-F0-9]{128})$"},
    },
}
INPUT_OUTPUT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"format": {"type": "string"}},
}
DATA = {
    "type": "object",
    "required": ["type"],
    "additionalProperties": False,
    "properties": {
        "bom-ref": {"type": "string", "minLength": 1},
        "type": {"enum": ["source-code", "configuration", "dataset", "definition", "other"]},
        "name": {"type": "string"},
    },
}
MODEL_CARD = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "modelParameters": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "task": {"type": "string"},
                "architectureFamily": {"type": "string"},
                "modelArchitecture": {"type": "string"},
                "datasets": {
                    "type": "array",
                    "items": {
                        "oneOf": [
                            DATA,
                            {
                                "type": "object",
                                "required": ["ref"],
                                "additionalProperties": False,
                                "properties": {"ref": {"type": "string"}},
                            },
                        ]
                    },
                },
                "inputs": {"type": "array", "items": INPUT_OUTPUT},
                "outputs": {"type": "array", "items": INPUT_OUTPUT},
            },
        },
        "quantitativeAnalysis": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "performanceMetrics": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {key: {"type": "string"} for key in ("type", "value", "slice")},
                    },
                }
            },
        },
    },
}
COMPONENT = {
    "type": "object",
    "required": ["type", "name"],
    "additionalProperties": False,
    "properties": {
        "type": {
            "enum": [
                "application",
                "framework",
                "library",
                "container",
                "platform",
                "operating-system",
                "device",
                "device-driver",
                "firmware",
                "file",
                "machine-learning-model",
                "data",
                "cryptographic-asset",
            ]
        },
        "bom-ref": {"type": "string", "minLength": 1},
        "name": {"type": "string"},
        "version": {"type": "string", "maxLength": 1024},
        "description": {"type": "string"},
        "hashes": {"type": "array", "items": HASH},
        "purl": {"type": "string"},
        "modelCard": MODEL_CARD,
        "data": {"type": "array", "items": DATA},
        "properties": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "additionalProperties": False,
                "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
            },
        },
    },
}
BOM = {
    "type": "object",
    "required": ["bomFormat", "specVersion"],
    "additionalProperties": False,
    "properties": {
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {
            "pattern": "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        },
        "version": {"type": "integer", "minimum": 1},
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "component": COMPONENT,
                "tools": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"components": {"type": "array", "items": COMPONENT}},
                },
            },
        },
        "components": {"type": "array", "items": COMPONENT, "uniqueItems": True},
        "dependencies": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "required": ["ref"],
                "additionalProperties": False,
                "properties": {
                    "ref": {"type": "string"},
                    "dependsOn": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
                },
            },
        },
    },
}


def made(card=CARD, **changes):
    values = {
        "name": "gates",
        "made_by": "0.1.0",
        "files": {"pipeline.yaml": "d" * 64, "golden.json": "e" * 64},
        "software": {"edge-deploy": "0.1.0", "numpy": "1.26.4"},
    }
    return make_sbom(card, **{**values, **changes})


def test_it_keeps_to_the_format():
    for card in (CARD, ModelCard(name="m", sha256="a" * 64, family="yolox", inputs="i", outputs="o", precision="fp16")):
        jsonschema.validate(json.loads(made(card)), BOM)


def test_references_within_it_lead_somewhere_and_none_is_given_twice():
    bom = json.loads(made())
    given = [one["bom-ref"] for one in (bom["metadata"]["component"], *bom["components"])]
    asked = {ref for one in bom["dependencies"] for ref in (one["ref"], *one["dependsOn"])}
    model = next(one for one in bom["components"] if one["type"] == "machine-learning-model")
    asked |= {one["ref"] for one in model["modelCard"]["modelParameters"]["datasets"]}

    assert len(given) == len(set(given))
    assert asked <= set(given)


def test_the_model_card_says_how_it_was_quantized_and_what_that_cost():
    bom = json.loads(made())
    model = next(one for one in bom["components"] if one["type"] == "machine-learning-model")

    assert model["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert model["properties"] == [
        {"name": "edge:precision", "value": "int8"},
        {"name": "edge:calibration:method", "value": "auto"},
    ]
    assert model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"] == [
        {"type": "mAP50-95", "slice": "float", "value": "0.3353"},
        {"type": "mAP50-95", "slice": "int8", "value": "0.3348"},
    ]


def test_the_same_release_has_the_same_document_and_another_one_another_number():
    assert made() == made()
    assert json.loads(made())["serialNumber"] != json.loads(made(name="other"))["serialNumber"]
