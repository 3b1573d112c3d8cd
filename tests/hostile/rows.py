"""The table: what is typed, the exit code, and what the message has to contain.

A row of a product stands for one kind of bad file and every command that takes such a file: `{}` is where it goes. The
message names the file, and the line; its words are held by the first of the commands, and by none where another test
is about them. What can be wrong in the lines of a file is held by the tests of what reads it.
"""

from collections.abc import Iterator, Mapping, Sequence

Row = tuple[str, int, str]

_KINDS = {  # that people mix up with what is expected
    "model.engine": "a TensorRT engine; give the .onnx that it was made of",
    "yolo.engine": "a TensorRT engine; give the .onnx that it was made of",
    "model.gz": "a gzip archive; unpack it",
    "model.bz2": "a bzip2 archive; unpack it",
    "model.xz": "an xz archive; unpack it",
    "model.tar": "a tar archive; unpack it",
    "model.h5": "an HDF5 file (Keras)",
    "model.tflite": "a TensorFlow Lite model",
    "shot.png": "a PNG picture",
    "shot.jpg": "a JPEG picture",
    "shot.heic": "a HEIC picture; convert it to JPEG",
    "paper.pdf": "a PDF document",
    "lfs.onnx": "a Git LFS pointer, which stands for the file; fetch the file: git lfs pull",
    "page.html": "a web page; download the file itself",
}
_TO_MODEL = (
    "edge-deploy inspect {}",
    "edge-deploy inspect {} --json",
    "edge-deploy calibrate {} --images pictures --method mse",
    "edge-deploy calibrate {} --images pictures --labels labels -o new.calib.json",
    "edge-deploy evaluate {} --images pictures --labels labels",
    "edge-deploy compare {} --table good.calib.json --images pictures",
    "edge-deploy table lint good.calib.json --model {}",
    "edge-deploy table import good.cache -o new.calib.json --model {}",
    "edge-deploy table qdq good.calib.json --model {} -o new.onnx",
)
_MODELS = {
    "gone.onnx": "gone.onnx: ",
    "folder": "folder: ",
    "loop": "loop: ",
    "fifo": "fifo: ",
    "zero": "zero: ",
    "/dev/zero": "/dev/zero: ",
    "/dev/null": "/dev/null: ",
    "empty": "empty: ",
    "text.txt": "text.txt: ",
    "page.html": "bytes are a web page; download the file itself",
    "lfs.onnx": "bytes are a Git LFS pointer, which stands for the file; fetch the file: git lfs pull",
    "archive.zip": "bytes are a zip archive; unpack it, and give the file in it",
    "best.pt": "bytes are a PyTorch checkpoint (.pt); export it with the tool that trained it",
    "old.pt": "bytes are a PyTorch checkpoint (.pt); export it with the tool that trained it",
    "noise": "noise: ",
    "good.yaml": "are text, such as a pipeline file or a table; name the .onnx file",
    "good.calib.json": "are text, such as a pipeline file or a table; name the .onnx file",
    "pictures/0.png": "pictures/0.png: ",
    "cut.onnx": "cut.onnx: ",
    "classifier.onnx": "classifier.onnx: ",
    "dynamic.onnx": "dynamic.onnx: ",
    "negative.onnx": 'input "images" is declared as (1, 3, -96, 96)',
    "flat.onnx": "flat.onnx: ",
    "huge.onnx": "export it for a smaller input",
    "apart.onnx": "apart.onnx.data",
    "terabyte.onnx": "terabyte.onnx.data: ",
}
_TO_TABLE = (
    "edge-deploy table show {}",
    "edge-deploy table lint {}",
    "edge-deploy table lint {} --model good.onnx",
    "edge-deploy table diff {} good.calib.json",
    "edge-deploy table diff good.calib.json {}",
    "edge-deploy table export {} -o new.cache",
    "edge-deploy table export {} -o new.json --format ranges",
    "edge-deploy table qdq {} --model good.onnx -o new.onnx",
    "edge-deploy evaluate good.onnx --images pictures --labels labels --table {}",
    "edge-deploy compare good.onnx --table {} --images pictures",
)
_TABLES = {
    "gone.json": "gone.json: ",
    "folder": "folder: ",
    "loop": "loop: ",
    "fifo": "fifo: ",
    "/dev/zero": "/dev/zero: ",
    "empty": "empty:1: ",
    "text.txt": "text.txt:1: ",
    "noise": "noise:",
    "good.onnx": "good.onnx:1: expected a calibration table (edge.calib/1), this is an ONNX model",
    "list.json": "list.json:1: ",
    "cut.json": "cut.json:1: ",
    "deep.json": "deep.json: expected a calibration table (edge.calib/1), this is nested too deep",
    "good.cache": "good.cache:1: ",
}
_TO_PIPELINE = (
    "edge-runtime run --pipeline {}",
    "edge-runtime run --pipeline {} --stats new.json",
    "edge-runtime bench --pipeline {}",
    "edge-runtime doctor --pipeline {}",
    "edge-deploy bundle {} --no-golden",
    "edge-deploy capacity {} --no-look",
)
_PIPELINES = {
    "gone.yaml": "gone.yaml: ",
    "folder": "folder: ",
    "fifo": "fifo: ",
    "/dev/zero": "/dev/zero: ",
    "empty": "empty: is empty; see pipelines/reference.yaml",
    "noise": "noise",
    "utf16.txt": "utf16.txt: ",
    "good.onnx": "good.onnx: expected a pipeline file (YAML), this is an ONNX model",
    "word.yaml": "word.yaml:1: ",
    "tab.yaml": "tab.yaml:2: not YAML",
    "alias.yaml": "alias.yaml:",
    "password.yaml": "password.yaml:",
    "no-clip.yaml": "gone.mp4",
    "no-model.yaml": "gone.onnx; paths start at the pipeline file's folder",
    "no-output.yaml": "no-output.yaml:",
    "onto-model.yaml": "publish.jsonl: messages would be written into model.onnx",
    "onto-itself.yaml": "publish.jsonl: messages would be written into this pipeline file",
    "batch.yaml": "batch.max_frames: ",
    "port.yaml": "mqtt.port: ",
    "fallback.yaml": "fp32 has nothing to fall back from; remove it, or use precision: int8",
}
_TO_CACHE = ("edge-deploy table import {} -o new.calib.json", "edge-deploy table import {} -o new --model good.onnx")
_CACHES = {
    "gone.cache": "gone.cache: ",
    "folder": "folder: ",
    "fifo": "fifo: ",
    "empty": "empty:1: ",
    "text.txt": "text.txt:1: ",
    "noise": "noise:",
    "good.calib.json": "good.calib.json:1: ",
    "no-end.cache": "no-end.cache:2: ",
    "short.cache": "short.cache:2: ",
}
_TO_INVENTORY = (
    "edge-deploy status a --targets {}",
    "edge-deploy logs a --targets {}",
    "edge-deploy targets --targets {}",
    "edge-deploy rollback a --targets {}",
    "edge-deploy push good.yaml a --targets {}",
    "edge-deploy push good.yaml a --plan --targets {}",
    "edge-deploy provision a --targets {}",
    "edge-deploy provision a --plan --targets {}",
)
_INVENTORIES = {
    "gone.toml": "gone.toml: ",
    "folder": "folder: ",
    "fifo": "fifo: ",
    "noise": "noise: ",
    "good.onnx": "good.onnx: expected an inventory (TOML), this is an ONNX model",
    "word.toml": "word.toml:1: not TOML",
}
_TO_OUTPUT = (
    "edge-deploy calibrate good.onnx --images pictures --method mse -o {}",
    "edge-deploy compare good.onnx --table good.calib.json --images pictures --html {}",
    "edge-deploy table import good.cache -o {} --model good.onnx",
    "edge-deploy table qdq good.calib.json --model good.onnx -o {}",
    "edge-runtime run --pipeline good.yaml --health {}",
)
_OUTPUTS = {
    "good.onnx": "good.onnx: ",
    "./folder/../good.onnx": "good.onnx: ",
    "folder": "folder: ",
    "gone/new": "gone/new: ",
    "empty/new": "empty/new: ",
    "fifo": "fifo: ",
    "/dev/null": "/dev/null: ",
}

_COMPARE = "edge-deploy compare good.onnx --table good.calib.json"
_SPREAD = "edge-deploy calibrate good.onnx --images pictures"
_SINGLE: Sequence[Row] = (
    ("edge-deploy table export good.calib.json -o new --tensorrt ten", 2, "'ten' is no TensorRT version"),
    ("edge-deploy table import good.onnx -o new", 2, "--float-model"),
    ("edge-deploy table import good.onnx -o new --float-model new", 2, "--float-model"),
    ("edge-deploy evaluate good.onnx --images gone --labels labels", 2, "gone: "),
    ("edge-deploy evaluate good.onnx --images labels --labels labels", 2, "labels: "),
    (
        "edge-deploy evaluate good.onnx --images damaged --labels labels",
        2,
        "damaged: 4 of 4 images cannot be decoded: ",
    ),
    ("edge-deploy evaluate good.onnx --images pictures --labels gone", 2, "gone: expected a folder of YOLO .txt files"),
    ("edge-deploy evaluate good.onnx --images pictures --labels wrong-labels", 2, "wrong-labels/0.txt:1: "),
    ("edge-deploy evaluate good.onnx --images pictures --labels list.json", 2, "list.json: "),
    ("edge-deploy evaluate good.onnx --images pictures --labels deep.json", 2, "deep.json: "),
    ("edge-deploy evaluate good.onnx --images pictures --labels digits.json", 2, "digits.json: "),
    *(
        (f"edge-deploy evaluate good.onnx --images odd-{name} --labels labels", 2, f"odd-{name}")
        for name in _KINDS
        if name not in ("shot.png", "shot.jpg")
    ),
    *(
        (
            f"edge-deploy evaluate good.onnx --images pictures --labels odd-labels-{name}",
            2,
            f"odd-labels-{name}/0.txt: ",
        )
        for name in _KINDS
    ),
    ("edge-deploy table show lfs.onnx", 2, "lfs.onnx:1: "),
    ("edge-runtime doctor --pipeline page.html", 2, "page.html: "),
    (_SPREAD.replace("pictures", "gone"), 2, "gone: expected a folder of images"),
    (_SPREAD.replace("pictures", "labels"), 2, "labels: expected images (.jpg, .jpeg"),
    ("edge-deploy calibrate good.onnx --images damaged --method mse", 2, "damaged: 4 of 4 images cannot be decoded: "),
    (f"{_SPREAD} --workers 0", 2, "0 is not in the range"),
    (f"{_SPREAD} --workers 1000000", 2, "1000000 is not in the range"),
    (f"{_SPREAD} --workers 2 --cluster tcp://a:1", 2, "--cluster and --workers: give one of the two"),
    (f"{_SPREAD} --mixed-cpus", 2, "--mixed-cpus"),
    (f"{_SPREAD} --workers 2 --mixed-cpus", 2, "--mixed-cpus"),
    (f"{_SPREAD} --cluster scheduler", 2, "'scheduler': expected the address of a Dask scheduler, as tls://HOST:8786"),
    (f"{_SPREAD} --cluster scheduler:8786", 2, "scheduler:8786"),
    (f"{_SPREAD} --cluster http://scheduler:8786", 2, "scheduler:8786"),
    (f"{_SPREAD} --cluster tcp://scheduler:99999", 2, "scheduler:99999"),
    (f"{_SPREAD} --cluster tcp://:8786", 2, "tcp://:8786"),
    (f"{_SPREAD} --cluster tls://127.0.0.1:1", 2, "certificates are named in Dask's configuration"),
    (f"{_SPREAD} --cluster tcp://127.0.0.1:1", 3, "tcp://127.0.0.1:1: "),
    ("edge-deploy calibrate good.onnx --images pictures --calibrator minmax --workers 2", 2, "leave out --workers"),
    ("edge-deploy evaluate good.onnx --images pictures --labels labels --workers 0", 2, "0 is not in the range"),
    (f"{_COMPARE} --images pictures --cluster x", 2, "--cluster"),
    (f"{_COMPARE} --images pictures --limit 0", 2, "0 is not in the range x>=1"),
    (f"{_COMPARE} --images labels", 2, "labels: "),
    (f"{_COMPARE} --images damaged", 2, "damaged: 4 of 4 images cannot be decoded: "),
    ("edge-runtime run", 2, "give PIPELINE or --release DIR"),
    ("edge-runtime run --pipeline good.yaml --release folder", 2, "--release"),
    ("edge-runtime run --pipeline good.yaml --duration nan", 2, "expected a finite number of seconds"),
    ("edge-runtime run --pipeline good.yaml --duration -1", 2, "--duration"),
    ("edge-runtime run --pipeline engine.yaml", 2, "abacus"),
    ("edge-runtime bench --pipeline engine.yaml", 2, "abacus"),
    ("edge-runtime doctor --pipeline engine.yaml", 2, "abacus"),
    ("edge-runtime bench", 2, "--peaks"),
    ("edge-runtime abacus", 2, "there is no command 'abacus'"),
    ("edge-deploy abacus", 2, "there is no command 'abacus'"),
    ("edge-deploy inspect", 2, "Missing argument 'MODEL'"),
    ("edge-deploy inspect good.onnx --colour", 2, "No such option"),
    ("edge-deploy capacity", 2, "Missing argument 'PIPELINE'"),
    ("edge-deploy capacity good.yaml --machine orin-nan-8gb", 2, "orin-nano-8gb"),
    ("edge-deploy capacity good.yaml --machine this/0", 2, "this/0"),
    ("edge-deploy capacity good.yaml --machine orin-nx-16g", 2, "nearest: orin-nx-16gb"),
    ("edge-deploy capacity good.yaml --machine /", 2, "'/'"),
    ("edge-deploy capacity good.yaml --headroom nan", 2, "headroom nan: "),
    ("edge-deploy capacity good.yaml --headroom 1.5", 2, "headroom 1.5: "),
    ("edge-deploy capacity good.yaml --timeout 0", 2, "--timeout"),
    ("edge-deploy capacity good.yaml --assume 1080p", 2, "expected WIDTHxHEIGHT[@FPS][/CODEC]"),
    ("edge-deploy capacity good.yaml --assume 640x360@0", 2, "expected more than 0"),
    ("edge-deploy capacity good.yaml --stream z=640x360", 2, "'z'"),
    ("edge-deploy capacity engine.yaml", 2, "abacus"),
    ("edge-deploy push folder a", 2, "folder/manifest.json: "),  # a folder is a bundle to it
    ("edge-deploy push", 2, "Missing argument 'PIPELINE_OR_BUNDLE'"),
    ("edge-deploy push good.yaml", 2, "Missing argument 'TARGET...'"),
    ("edge-deploy push good.yaml a --reconnect 0", 2, "--reconnect"),
    ("edge-deploy push good.yaml a --reconnect nan", 2, "--reconnect"),
    ("edge-deploy push good.yaml a --deadline -1", 2, "--deadline"),
    ("edge-deploy push good.yaml a --lock-wait soon", 2, "--lock-wait"),
    ("edge-deploy provision", 2, "Missing argument 'TARGET...'"),
    ("edge-deploy provision a --pull-from gates", 2, "gates"),
    ("edge-deploy provision a --pull-from https://a.b/gates", 2, "a registry is always reached by HTTPS"),
    ("edge-deploy provision a --pull-from a.b/gates:stable", 2, "channel and ring make the tag"),
    ("edge-deploy provision a --pull-from a.b/gates --ring ALL", 2, "ring: expected a-z, 0-9 and '-'"),
    ("edge-deploy provision a --pull-from a.b/gates --channel a --channel b", 2, "give one --channel"),
    ("edge-deploy provision a --name Gate_99", 2, "--name: expected a-z, 0-9 and '-'"),
    ("edge-deploy provision a --name ''", 2, "--name: expected a-z, 0-9 and '-'"),
    ("edge-deploy provision a --channel Beta", 2, "--channel: expected a-z, 0-9 and '-'"),
    ("edge-deploy provision a --network gate", 2, "--network: 'gate'"),
    ("edge-deploy provision a --ring canary", 2, "go with --pull-from"),
    ("edge-deploy provision a --ring all", 2, "go with --pull-from"),
    ("edge-deploy provision a --registry-ca-beside", 2, "go with --pull-from"),
    ("edge-deploy provision a --registry-ca text.txt", 2, "--pull-from"),
    ("edge-deploy provision a --pull-from a.b/gates --registry-ca-alone", 2, "goes with --registry-ca"),
    ("edge-deploy provision a --pull-from a.b/gates --registry-ca text.txt", 12, "no certificate can be read"),
    ("edge-deploy provision a --pull-from a.b/gates --registry-ca fifo", 2, "fifo: "),
    ("edge-deploy promote a.b/gates:1", 2, "Missing argument 'RING'"),
    ("edge-deploy promote a.b/gates:1 A", 2, "expected a-z, 0-9 and '-'"),
    ("edge-deploy promote a.b/gates:1 all --when often", 2, "expected such as '95% of canary for 1h"),
    ("edge-deploy promote a.b/gates:1 all --devices gate-01", 2, "expected SITE/NAME"),
    ("edge-deploy withdraw a.b/gates:1", 2, "say --why TEXT, or --lift"),
    ("edge-deploy fleet", 2, "--pipeline"),
    ("edge-deploy trust publish text.txt a.b/gates", 2, "is not who counts"),
    ("edge-deploy publish", 2, "Missing argument 'PIPELINE_OR_BUNDLE'"),
    ("edge-deploy publish good.yaml", 2, "Missing argument 'REGISTRY/REPOSITORY[:TAG]'"),
    ("edge-deploy publish good.yaml gates", 2, "gates"),
    ("edge-deploy publish good.yaml https://a.b/gates", 2, "https://a.b/gates"),
    ("edge-deploy publish good.yaml a.b/Gates", 2, "a repository of a-z, 0-9"),
    ("edge-deploy publish good.yaml a.b/gates:", 2, "a tag of letters, digits"),
    ("edge-deploy publish good.yaml a.b/gates --login gone", 12, "gone: No such file or directory"),
    ("edge-deploy publish good.yaml a.b/gates --login text.txt", 12, "expected one line, user:password"),
    ("edge-deploy publish good.yaml a.b/gates --login fifo", 2, "fifo: "),
    ("edge-deploy publish good.yaml a.b/gates --ca text.txt", 12, "text.txt"),
    ("edge-deploy publish folder a.b/gates", 2, "folder/manifest.json: "),
    ("edge-deploy demo --cameras 0", 2, "--cameras"),
    ("edge-deploy demo --cameras 65", 2, "--cameras"),
    ("edge-deploy demo --seconds 0", 2, "--seconds"),
    ("edge-deploy demo --seconds nan", 2, "--seconds"),
    ("edge-deploy demo --seconds inf", 2, "--seconds"),
    ("edge-deploy demo --precision fp64", 2, "--precision"),
    ("edge-deploy demo --keep good.yaml", 2, "good.yaml: no folder to keep clips in: File exists"),
    ("edge-deploy demo picture", 2, "unexpected extra argument"),
    ("edge-deploy listen", 2, "give PIPELINE or --host"),
    ("edge-deploy listen --host a.b --duration 0", 2, "--duration"),
    ("edge-deploy listen --host a.b --device a/b", 2, "--device"),
    ("edge-deploy listen --pipeline no-output.yaml", 2, "no-output.yaml:"),
)


def rows() -> Iterator[Row]:
    yield from _SINGLE
    yield from _product(_TO_MODEL, _MODELS)
    yield from _product(_TO_TABLE, _TABLES)
    yield from _product(_TO_PIPELINE, _PIPELINES)
    to_bundle = ("edge-deploy push {} a", "edge-deploy publish {} a.b/gates")
    yield from _product(to_bundle, {name: _PIPELINES[name] for name in _PIPELINES if name != "folder"})
    yield from _product(_TO_CACHE, _CACHES)
    yield from _product(_TO_INVENTORY, _INVENTORIES)
    yield from _product(_TO_OUTPUT, _OUTPUTS)
    odd = {name: words for name, words in _KINDS.items() if name not in _MODELS}
    yield from _product(_TO_MODEL[:1], odd)
    for takers in (_TO_TABLE[::4], _TO_PIPELINE[::4], _TO_CACHE[:1], _TO_INVENTORY[:1]):
        yield from _product(takers, {name: name for name in odd})


def _product(commands: Sequence[str], bad: Mapping[str, str], code: int = 2) -> Iterator[Row]:
    for name, words in bad.items():
        yield commands[0].format(name), code, words
        place = words if words.endswith((":", ": ")) else name
        yield from ((command.format(name), code, place) for command in commands[1:])
