"""Each mistake that a person makes in a pipeline file gets one line that points at it."""

import itertools

import pytest

from edge.config.pipeline import load_pipeline
from edge.config.yaml_file import read_yaml
from edge.errors import ConfigError, LackingError

GOOD = """\
version: 1
model:
  onnx: model.onnx
streams:
  - id: gate
    uri: clip.mp4
  - {id: lobby, uri: "rtsp://camera/main", max_fps: 15}
publish: {jsonl: "-"}
"""


@pytest.fixture
def load(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "clip.mp4").write_bytes(b"")

    def load_text(text):
        path = tmp_path / "p.yaml"
        path.write_text(text)
        return load_pipeline(path)

    return load_text


def test_a_good_file_is_read_with_defaults(load, tmp_path):
    pipeline = load(GOOD)

    assert [stream.id for stream in pipeline.config.streams] == ["gate", "lobby"]
    assert pipeline.config.streams[1].max_fps == 15
    assert pipeline.config.model.precision == "fp32"
    assert pipeline.config.publish.mode == "change"
    assert pipeline.resolve("model.onnx") == tmp_path / "model.onnx"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "  onnx:",
            "  score_treshold: 0.3\n  onnx:",
            "p.yaml:3: model.score_treshold: unknown key; did you mean 'score_t",
        ),
        ("id: gate", "id: Gate East", "p.yaml:5: streams[0].id: got 'Gate East', expected 1 to 32 of a-z"),
        ("id: lobby", "id: gate", "p.yaml:7: streams[1].id: 'gate' is already streams[0]; give each"),
        ("max_fps: 15", "max_fps: fast", "p.yaml:7: streams[1].max_fps: got 'fast', expected a number above 0"),
        ("max_fps: 15", "max_fps: .inf", "streams[1].max_fps: got inf, expected a number above 0 and at most 1000"),
        ("max_fps: 15", "max_fps: .nan", "streams[1].max_fps: got nan, expected a number above 0"),
        *(
            ("max_fps: 15", f"credential: {given}", "p.yaml:7: streams[1].credential: expected the name of a secret")
            for given in ('"me:hush"', "{user: me, password: hush}", "[me, hush]", "4711", '"me:hush\\n"')
        ),
        (
            "publish:",
            'mqtt: {host: b, credential: "me:hush"}\npublish:',
            "p.yaml:8: mqtt.credential: expected the name of a secret, not the secret itself",
        ),
        ("id: gate", 'id: "gate\\n"', "streams[0].id: got 'gate\\n', expected 1 to 32 of a-z"),
        ("max_fps: 15", "tls: {ca: ca.pem}", "p.yaml:7: streams[1].tls: is for rtsps:// and https://; remove it"),
        ('"rtsp://camera/main", max_fps: 15', '"rtsps://camera/a", tls: {}', "streams[1].tls: expected either ca or"),
        (
            '"rtsp://camera/main", max_fps: 15',
            f'"rtsps://camera/a", tls: {{ca: ca.pem, fingerprint: "sha256:{"0" * 64}"}}',
            "p.yaml:7: streams[1].tls: expected either ca or fingerprint",
        ),
        (
            '"rtsp://camera/main", max_fps: 15',
            '"https://camera/a", tls: {fingerprint: "sha256:00"}',
            "streams[1].tls.fingerprint: got 'sha256:00', expected sha256: and 64 hexadecimal digits",
        ),
        ("max_fps: 15", "priority: 0", "p.yaml:7: streams[1].priority: got 0, expected a whole number from 1 to 100"),
        ("max_fps: 15", "priority: 101", "streams[1].priority: got 101, expected a whole number from 1 to 100"),
        ("max_fps: 15", "max_age_ms: 0", "streams[1].max_age_ms: got 0, expected a number above 0"),
        (
            "uri: clip.mp4",
            "uri: clip.mp4\n    max_age_ms: 500",
            "p.yaml:7: streams[0].max_age_ms: a file waits for its turn and none of its frames is dropped; remove it",
        ),
        ("max_fps: 15", "classes: []", "streams[1].classes: got [], expected a list of at least 1"),
        ("publish:", 'mqtt: {host: "broker:1883"}\npublish:', "mqtt.host: got 'broker:1883', expected a host name"),
        ("publish:", 'mqtt: {host: ""}\npublish:', "mqtt.host: got '', expected a host name or an address alone"),
        (
            "publish:",
            "mqtt:\n  host: b\n  memory_mib: 200\npublish:",
            "mqtt.memory_mib: expected spool.max_mib 256 to be at least twice memory_mib 200; change one",
        ),
        (
            "publish:",
            "mqtt:\n  host: b\n  spool: {max_mib: 20}\npublish:",
            "mqtt.spool.max_mib: expected spool.max_mib 20 to be at least twice memory_mib 16",
        ),
        (
            "publish:",
            "mqtt: {host: b, spool: {max_mib: 2}}\npublish:",
            "mqtt.spool.max_mib: got 2, expected a whole number from 16 to 1048576",
        ),
        (
            "publish:",
            "mqtt: {host: b, spool: {max_gib: 2}}\npublish:",
            "mqtt.spool.max_gib: ",
        ),
        ("version: 1", "? [a]\n: 1\nversion: 1", "p.yaml:1: a key has to be plain text"),
        ("max_fps: 15", "max_fps: -1", "p.yaml:7: streams[1].max_fps: got -1, expected a number above 0"),
        (
            "max_fps: 15",
            "decoder: nvdec",
            "streams[1].decoder: got 'nvdec', expected one of auto, nvmm, pyav, software",
        ),
        ("model.onnx", "no.onnx", "p.yaml:3: model.onnx: no such file: "),
        ("clip.mp4", "no.mp4", "p.yaml:6: streams[0].uri: "),
        (
            "rtsp://camera",
            "rtmp://camera",
            "p.yaml:7: streams[1].uri: unknown scheme 'rtmp'; use a path, or one of file, rtsp",
        ),
        ("rtsp://camera", "rtsp://me:hush@camera", "streams[1].uri: a password in a file is read by everybody"),
        (
            "rtsp://camera",
            "rtsp://camera/?user=me&pwd=s3cret",
            "streams[1].uri: a password or token in a file is read by everybody",
        ),
        (
            "rtsp://camera",
            "rtsp://camera/user=me_password=s3cret_1",
            "streams[1].uri: a password or token in a file is read by everybody",
        ),
        (
            "rtsp://camera",
            "rtsp://camera/?pwd={password}&channel=",
            "streams[1].uri: {user} and {password} are those of a cred",
        ),
        ("max_fps: 15", "loop: true", "streams[1].loop: a rtsp stream is live already; 'loop' is for files"),
        ("version: 1", "version: 2", "p.yaml:1: version: got 2, expected one of 1"),
        ("version: 1\n", "", "p.yaml:1: 'version' is missing; it has no default, add it"),
        ('publish: {jsonl: "-"}', "", "publish: nothing would leave this machine; add mqtt, or publish.jsonl"),
        (
            "  onnx: model.onnx",
            "  onnx: model.onnx\n  calibration: no.calib.json",
            "p.yaml:4: model.calibration: ",
        ),
        ("version: 1", "version: 1\nversion: 1", "p.yaml:2: version: given twice, first in line 1; keep one"),
        ("  - id: gate\n", "  - id: [gate\n", "p.yaml:6: not YAML: "),
        ("max_fps: 15", "max_fps: 010", "p.yaml:7: streams[1].max_fps: got 010, which YAML takes for 8; write the num"),
        ("max_fps: 15", "max_age_ms: 1:30", "streams[1].max_age_ms: got 1:30, which YAML takes for 90; write"),
        ("id: gate", "id: 007", "p.yaml:5: streams[0].id: got 007, which YAML takes for 7; write the number as it is"),
        ("id: gate", "id: no", "p.yaml:5: streams[0].id: got False, expected a text; put it in quotes"),
        (
            "publish:",
            "mqtt: {host: b, site: 2026-11-01}\npublish:",
            "mqtt.site: got 2026-11-01, expected a text; put it",
        ),
        (
            "publish:",
            "mqtt: {host: b, prefix: /edge/}\npublish:",
            "p.yaml:8: mqtt.prefix: got '/edge/', expected topic",
        ),
        ("publish:", 'mqtt: {host: b, prefix: "edge/#"}\npublish:', "p.yaml:8: mqtt.prefix: got 'edge/#', expected t"),
        ("rtsp://camera", "rtsp://camera:99999", "p.yaml:7: streams[1].uri: expected a host and, if any, a port up to"),
        ("rtsp://camera", "rtsp://a:pa#ss@camera", "a port up to 65535 after 'rtsp://'; in a password write @ as %40"),
        ("rtsp://camera", "rtsp://fe80::1/a", "an IPv6 address stands in"),
        ("rtsp://camera", "rtsp://the camera", "p.yaml:7: streams[1].uri: expected a host and, if any, a port up to"),
        (
            "  - id: gate\n",
            "  - <<: gate\n    id: gate\n",
            "p.yaml:5: streams[0]: expected keys with values behind '<<'",
        ),
        (GOOD, "", "p.yaml: is empty"),
        ("version: 1", "version: !!int ''", "p.yaml:1: version: cannot read ''; quote it"),
        ("version: 1", "version: !!bool 1", "p.yaml:1: version: cannot read '1'; quote it"),
        ("version: 1", "version: !!timestamp x", "p.yaml:1: version: cannot read 'x'; quote it"),
        ("model.onnx", "~no-such-user/m.onnx", "p.yaml:3: model.onnx: "),
        ("model.onnx", "m" * 5000, "p.yaml:3: model.onnx: "),
        ("clip.mp4", "c" * 5000, "p.yaml:6: streams[0].uri: "),
        (GOOD, "- 1\n", "p.yaml:1: got [1], expected keys with values"),
        (
            GOOD,
            "version: 1\nmodel: {onnx: model.onnx}\nstreams: []\n",
            "p.yaml:3: streams: got [], expected a list of at least 1",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(load, old, new, expected):
    assert old in GOOD

    with pytest.raises(ConfigError) as caught:
        load(GOOD.replace(old, new))

    assert expected in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\n"
        + "".join(f"{c}: &{c} [{', '.join([f'*{b}'] * 10)}]\n" for b, c in itertools.pairwise("abcdefghi")),
        "device: &r [*r]\n",
        "[" * 3000,
        "a: " + "[" * 50 + "]" * 50,
    ],
    ids=["aliases-of-aliases", "an-alias-of-itself", "deep-and-open", "deep"],
)
def test_a_file_that_grows_without_end_is_refused_at_once(load, text):
    with pytest.raises(ConfigError, match=r"p\.yaml"):
        load(text)


def test_a_label_is_that_of_each_class_that_is_called_so(load):
    labels = ("car", "bus", "person", "car")

    assert load(GOOD).class_ids(("streams", 0), ["person", "car"], labels) == [0, 2, 3]


def test_a_secret_that_is_absent_is_named_with_its_place(load, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    text = GOOD.replace("max_fps: 15", "credential: nope").replace(
        "publish:", "mqtt: {host: b, credential: me}\npublish:"
    )
    pipeline = load(text)

    assert pipeline.login_of_stream(0) is None
    with pytest.raises(LackingError, match=r"p.yaml:7: streams\[1\].credential: credential 'nope' is not here; write"):
        pipeline.login_of_stream(1)
    with pytest.raises(LackingError, match=r"p.yaml:8: mqtt.credential: credential 'me' is not here; write"):
        pipeline.login_of_broker()


def test_a_folder_is_not_called_missing(load):
    with pytest.raises(ConfigError, match="is a folder; name a clip in it"):
        load(GOOD.replace("uri: clip.mp4", "uri: ."))


def test_what_streams_have_in_common_is_written_once(load):
    common = "&low {uri: clip.mp4, max_fps: 5, priority: 2}"
    streams = f"{{<<: {common}, id: a}}", "{id: b, max_fps: 9, <<: *low}", "{<<: [{priority: 3}, *low], id: c}"
    text = GOOD.replace("streams:\n", "streams:\n" + "".join(f"  - {one}\n" for one in streams))
    found = [(one.uri, one.max_fps, one.priority) for one in load(text).config.streams[:3]]

    assert found == [("clip.mp4", 5, 2), ("clip.mp4", 9, 2), ("clip.mp4", 5, 3)]


@pytest.mark.parametrize("host", ["broker.local", "10.0.0.7", "::1", "fe80::1", "fe80::1%eth0", "a_b-c"])
def test_hosts_that_are_good(load, host):
    assert load(GOOD.replace("publish:", f'mqtt: {{host: "{host}"}}\npublish:')).config.mqtt.host == host


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_pipeline(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfev\0", "text in UTF-16; save it"),
        (b"a: \xe4", "not UTF-8 text .byte 3.; save it as UTF-8"),
        (b"a:\n\tb: 1", "p.yaml:2: not YAML: .*; YAML takes no tabs here: write blanks"),
        (b"a:\n  b:\t1", "p.yaml:2: not YAML: .*; YAML takes no tabs here: write blanks"),
        ("# a\u00a0b\na:\n \u00a0b: 1".encode(), "p.yaml:3: a non-breaking space"),
        ("- a:\u00a01".encode(), "p.yaml:1: a non-breaking space"),
    ],
)
def test_a_file_that_is_not_utf_8_or_not_blank(tmp_path, content, told):
    (tmp_path / "p.yaml").write_bytes(content)

    with pytest.raises(ConfigError, match=told):
        load_pipeline(tmp_path / "p.yaml")


def test_a_non_breaking_space_within_a_text_is_its_own(tmp_path):
    (tmp_path / "p.yaml").write_text("names:\n  - Tor\u00a01 # Tor\u00a0Süd\n  - b\n", encoding="utf-8")

    assert read_yaml(tmp_path / "p.yaml").content == {"names": ["Tor\u00a01", "b"]}
