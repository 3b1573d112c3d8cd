"""The inventory: read strictly, and each mistake gets one line that points at it; counts and shares, by hand."""

from pathlib import Path

import pytest

from edge.cli.fleet import select
from edge.config.targets import Inventory, find_inventory, is_more_than, load_inventory, part_of
from edge.errors import ConfigError

GOOD = """\
[defaults]
user = "edge-deploy"
compatible = "jetson-orin"
max_parallel = 8

[wave]                      # order of a rollout
canary = ["gate-01"]
steps = ["10%", "100%"]
max_failed = "5%"           # of attempted, unreachable not counted
soak_s = 120

[[target]]
name = "gate-01"
host = "gate-01"
labels = { site = "north", module = "orin-nano-8" }

[[target]]
name = "yard-01"
host = "10.0.0.7"
user = "other"
port = 2222
identity = "keys/yard"
compatible = "jetson-thor"

[[target]]
name = "yard-02"
host = "yard-02.lan"
labels.site = "north"
"""


@pytest.fixture
def load(tmp_path):
    def load_text(text):
        path = tmp_path / "targets.toml"
        path.write_text(text)
        return load_inventory(path)

    return load_text


def test_a_good_file_is_read_with_defaults(load, tmp_path):
    inventory = load(GOOD)

    assert list(inventory.targets) == ["gate-01", "yard-01", "yard-02"]
    gate, yard = inventory.targets["gate-01"], inventory.targets["yard-01"]
    assert (gate.host, gate.user, gate.port, gate.identity) == ("gate-01", "edge-deploy", None, None)
    assert gate.labels == {"site": "north", "module": "orin-nano-8"}
    assert (yard.user, yard.port, yard.identity) == ("other", 2222, tmp_path / "keys/yard")
    assert (gate.compatible, yard.compatible) == ("jetson-orin", "jetson-thor")
    assert inventory.max_parallel == 8
    assert inventory.wave.canary == ("gate-01",)
    assert inventory.wave.steps == ("10%", "100%")
    assert inventory.wave.soak_s == 120


def test_a_file_with_targets_alone_has_careful_defaults(load):
    inventory = load('[[target]]\nname = "a"\nhost = "a"\n')

    assert inventory.max_parallel == 16
    assert inventory.wave.canary is None
    assert (inventory.wave.steps, inventory.wave.max_failed) == (("10%", "100%"), "5%")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("max_parallel", "max_paralel", "targets.toml:4: defaults.max_paralel: ... 'max_parallel'"),
        ("port = 2222", "prot = 2222", "targets.toml:21: target[1].prot: ... 'port'"),
        ("[wave]", "[waves]", "targets.toml:6: waves: ... 'wave'"),
        ('name = "yard-01"', 'name = "Yard 01"', "targets.toml:18: target[1].name: got 'Yard 01', expected 1 to 32"),
        ('name = "yard-01"', 'name = "gate-01"', "targets.toml:18: target[1].name: 'gate-01' is already target[0]"),
        ('name = "yard-01"', 'name = "all"', "targets.toml:18: target[1].name: 'all' means every target"),
        ('name = "yard-01"\n', "", "targets.toml:17: target[1]: 'name' "),
        ('host = "10.0.0.7"', 'host = "ssh://x"', "targets.toml:19: target[1].host: got 'ssh://x', expected a host"),
        ('host = "10.0.0.7"', 'host = "-oProxyCommand=x"', "targets.toml:19: target[1].host: got '-oProxy"),
        ('user = "other"', 'user = "-x"', "targets.toml:20: target[1].user: got '-x', expected the name of a user"),
        (
            'user = "other"',
            'user = "me:hush"',
            "targets.toml:20: target[1].user: got what may hold a password, expected",
        ),
        ("port = 2222", "port = 0", "targets.toml:21: target[1].port: got 0, expected a whole number from 1 to 65535"),
        (
            "port = 2222",
            "port = true",
            "targets.toml:21: target[1].port: got True, expected a whole number from 1 to 65535",
        ),
        ('site = "north", ', "site = 3, ", "targets.toml:15: target[0].labels: got"),
        ('site = "north", ', 'Site = "a", ', "targets.toml:15: target[0].labels: got {'Site': 'a', "),
        ('site = "north", ', 'site = "a b", ', "targets.toml:15: target[0].labels.site: got 'a b', expected text"),
        (
            "max_parallel = 8",
            "max_parallel = 0",
            "targets.toml:4: defaults.max_parallel: got 0, expected a whole number from 1 to 256",
        ),
        ('canary = ["gate-01"]', 'canary = ["x"]', "targets.toml:7: wave.canary: "),
        ('"10%", "100%"', '"10%"', "targets.toml:8: wave.steps: the last step is 10%, expected '100%'"),
        ('"10%", "100%"', '"10", "100%"', "targets.toml:8: wave.steps[0]: got '10', expected a share such as '10%'"),
        ('"10%", "100%"', '"50%", "10%", "100%"', "targets.toml:8: wave.steps: each step is more than the one before"),
        ('"10%", "100%"', '"0%", "100%"', "targets.toml:8: wave.steps: each step is more"),
        ('"5%"  ', '"105%"', "targets.toml:9: wave.max_failed: got '105%', expected a share"),
        ('"5%"  ', "-1", "targets.toml:9: wave.max_failed: got -1, expected a whole number from 0 to 10000"),
        ("soak_s = 120", "soak_s = nan", "targets.toml:10: wave.soak_s: got nan, expected a number from 0 to 86400"),
        ("soak_s = 120", "soak_s = inf", "targets.toml:10: wave.soak_s: got inf, expected a number from 0 to 86400"),
        ("soak_s = 120", "soak_s = 1979-05-27", "targets.toml:10: wave.soak_s: got"),
        ("soak_s = 120", "soak_s = 120\nsoak_s = 1", "targets.toml:11: not TOML: Cannot overwrite a value"),
        ("soak_s = 120", "soak_s = ", "targets.toml:10: not TOML: Invalid value"),
        ('labels.site = "north"', 'labels.site = "north', "targets.toml:28: not TOML:"),
    ],
)
def test_a_mistake_is_told_by_its_line(load, old, new, expected):
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load(GOOD.replace(old, new, 1))

    assert all(part in str(caught.value) for part in expected.split(" ... "))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"target = 1", b"[target]\nname = 'a'", b"[" * 5000])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "targets.toml"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"targets\.toml"):
        load_inventory(path)


def test_the_nearest_file_counts(tmp_path, monkeypatch):
    home, here = tmp_path / "home", tmp_path / "here"
    (home / "edge-deploy").mkdir(parents=True)
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    assert find_inventory(None).targets == {}

    (home / "edge-deploy/targets.toml").write_text('[[target]]\nname = "of-home"\nhost = "a"\n')
    assert list(find_inventory(None).targets) == ["of-home"]

    (here / "targets.toml").write_text('[[target]]\nname = "of-here"\nhost = "a"\n')
    assert list(find_inventory(None).targets) == ["of-here"]
    assert find_inventory(None).path == Path("targets.toml")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gate-01"], ["gate-01"]),
        (["all"], ["gate-01", "yard-01", "yard-02"]),
        (["site=north"], ["gate-01", "yard-02"]),
        (["yard-02", "site=north", "all"], ["yard-02", "gate-01", "yard-01"]),
        (["module=orin-nano-8", "gate-01"], ["gate-01"]),
        (["jane@10.1.2.3"], ["jane@10.1.2.3"]),
        (["fe80::1"], ["fe80::1"]),
    ],
)
def test_what_words_mean(load, words, expected):
    assert [target.name for target in select(words, load(GOOD))] == expected


def test_a_host_that_is_in_no_file_is_as_ssh_knows_it():
    (target,) = select(["jane@gate-09"], Inventory())

    assert (target.host, target.user, target.port) == ("gate-09", "jane", None)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("site=south", r"no target has site=south; known: module=orin-nano-8, site=north"),
        ("-oProxyCommand=x", "no target has -oProxyCommand=x"),
        ("-x", "'-x' is no target"),
        ("a b", "'a b' is no target"),
        ("", "'' is no target"),
        ("x\n", "is no target"),
    ],
)
def test_words_that_mean_nothing(load, word, expected):
    with pytest.raises(ConfigError, match=expected):
        select([word], load(GOOD))


def test_all_needs_an_inventory():
    with pytest.raises(ConfigError, match=r"all: there is no inventory; write a targets\.toml"):
        select(["all"], Inventory())


def test_the_home_of_a_user_who_is_not_there_is_a_folder_of_that_name(tmp_path):
    path = tmp_path / "targets.toml"
    path.write_text('[[target]]\nname = "a"\nhost = "a"\nidentity = "~no-such-user/key"\n')

    assert load_inventory(path).targets["a"].identity == tmp_path / "~no-such-user/key"


@pytest.mark.parametrize(
    ("written", "total", "expected"),
    [
        ("10%", 3, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("100%", 7, 7),
        ("0%", 7, 0),
        ("33.33%", 3, 1),
        ("33.34%", 3, 2),
        ("10%", 0, 0),
        (4, 10, 4),
        (4, 3, 3),
    ],
)
def test_a_share_is_rounded_up_and_a_count_is_at_most_all(written, total, expected):
    assert part_of(written, total) == expected


@pytest.mark.parametrize(
    ("written", "count", "total", "expected"),
    [
        ("5%", 1, 20, False),
        ("5%", 1, 19, True),
        ("5%", 3, 60, False),
        ("5%", 0, 0, False),
        ("0%", 1, 100, True),
        ("7%", 7, 100, False),  # 0.07 * 100 is more than 7 in floating point
        (2, 2, 100, False),
        (2, 3, 3, True),
    ],
)
def test_a_limit_is_exceeded_by_more_than_it_exactly(written, count, total, expected):
    assert is_more_than(written, count, total) is expected


@pytest.mark.parametrize("written", ["", "%", "101%", "-1%", "1e1%", "10 %", "10", "nan%", "5%\\n", "-1"])
def test_what_is_neither_a_share_nor_a_count_is_refused(load, written):
    value = written if written == "-1" else f'"{written}"'

    with pytest.raises(ConfigError, match=r"wave\.max_failed: got .*, expected a (share|whole number)"):
        load(f'wave.max_failed = {value}\n[[target]]\nname = "a"\nhost = "a"\n')
