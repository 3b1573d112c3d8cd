"""`proxy.env` is read as systemd reads it: systemd.exec(5), and what its own parser (252) makes of the same file."""

import pytest

from edge.errors import DeployError
from edge.runtime.pull.entry import read_environment

FILE = r"""
# a comment
; another
https_proxy=http://proxy.lan:3128
  no_proxy = "localhost, 10.0.0.1"
no equals sign
single='it is \n "as" it stands'
double="a \"quote\", a \\, a \d"
plain=a  b\ c\\d "e"
both='a'"b"c
empty=
long=one\
two
url=http://ops:p%40ss#word@proxy:1/?a=b
"""


def test_each_line_is_what_systemd_takes_it_for(tmp_path):
    (tmp_path / "proxy.env").write_text(FILE)

    assert read_environment(tmp_path / "proxy.env") == {
        "https_proxy": "http://proxy.lan:3128",
        "no_proxy": "localhost, 10.0.0.1",
        "single": r'it is \n "as" it stands',
        "double": r'a "quote", a \, a \d',
        "plain": r'a  b c\d "e"',
        "both": "abc",
        "empty": "",
        "long": "onetwo",
        "url": "http://ops:p%40ss#word@proxy:1/?a=b",
    }


def test_no_file_says_nothing(tmp_path):
    assert read_environment(tmp_path / "proxy.env") == {}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"a='hunter2", ":1: a quote that is not closed"),
        (b'a="hunter2\\"', ":1: a quote that is not closed"),
        (b"a=hunter2\xff", ""),
        (b"x=1\ny='hunter2", ":2: a quote that is not closed"),
    ],
)
def test_what_cannot_be_read_is_named_without_what_stands_there(tmp_path, content, place):
    (tmp_path / "proxy.env").write_bytes(content)

    with pytest.raises(DeployError) as failed:
        read_environment(tmp_path / "proxy.env")

    assert failed.value.code == "device.settings"
    assert f"{tmp_path}/proxy.env{place}" in failed.value.problem
    assert "hunter2" not in str(failed.value)
