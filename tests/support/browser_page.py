"""An HTML file of ours, parsed as a browser would, and what every one of them has to be."""

import re
from html.parser import HTMLParser

EVIL = '<script>alert("1")</script>&amp;'
VOID = {"meta", "br", "img", "link", "input"}


class Page(HTMLParser):
    """Checks nesting, and keeps texts by the element they are in, and all attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [text for where, text in self.texts if where == tag]


def require_alone(text, *, own):
    """Nothing is fetched; each colour is used, and has a value in the dark; each number is one. `own`: a path in it."""
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text.replace(own, ""))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href", "srcset"} & {name for name, _ in page.attributes}
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in text.split("prefers-color-scheme: dark")[:2])
    assert light == dark == set(re.findall(r"var\((--\w+)\)", text))
    assert not re.search(r'="(nan|inf|-inf)', text)
