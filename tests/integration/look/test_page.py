"""The status page of a real service in a real browser."""

import json

import pytest

from edge.config.pipeline import load_pipeline
from tests.support.http_client import ask
from tests.support.showing import needs_chromium
from tests.support.wait import wait_until

pytestmark = [needs_chromium, pytest.mark.slow(reason="drives a browser, which only make test-rest installs")]

PHONE = {"width": 360, "height": 740}


@pytest.fixture
def page(browser):
    """A page whose errors, dialogs and requests are kept."""
    context = browser.new_context()
    page = context.new_page()
    page.problems, page.asked = [], []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: page.problems.append(dialog.message))
    page.on("console", lambda one: page.problems.append(one.text) if "Content Security Policy" in one.text else None)
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    context.close()


def card(page, stream):
    return page.locator(".stream", has=page.locator(f".name span:text-is('{stream}')"))


def wait_for_picture(page, stream):
    image = card(page, stream).locator("img").element_handle()
    page.wait_for_function("image => image.naturalWidth > 0 && image.className === ''", arg=image, timeout=60_000)


def test_every_stream_is_shown_with_its_picture_rate_and_drops(service, page):
    page.goto(service.url)
    for stream in ("east", "west"):
        wait_for_picture(page, stream)
        page.wait_for_function(
            "card => /[1-9][0-9.]* fps/.test(card.innerText)", arg=card(page, stream).element_handle()
        )
        assert "decoded" in card(page, stream).inner_text()
    assert "down" in card(page, "gone").inner_text() or "connecting" in card(page, "gone").inner_text()
    assert page.inner_text("#device") == "dev"
    assert "openvino" in page.inner_text("#release").lower()
    assert "infer" in page.inner_text("#stages")
    assert "jsonl" in page.inner_text("#messages")
    assert page.problems == []


def test_what_a_device_says_is_text_and_never_html(service, page):
    page.goto(service.url)
    evil = '<img src=x onerror="document.title=1"><script>alert(1)</script>'
    document = json.loads(ask(service.port, "/status.json")[2])
    first = document["streams"][0]
    hostile = {**document, "device": evil, "reason": evil, "pipeline": evil, "engine": evil, "streams": [first]}
    hostile["streams"] = [{**first, "id": evil, "state": "down", "reason": evil, "dropped": {evil: 1}}]
    hostile["machine"] = {"zones": {evil: {"celsius": 1, "limit_c": None}}, "mode": evil, "throttled_by": [evil]}
    page.route("**/status.json", lambda route: route.fulfill(status=200, json=hostile))
    page.wait_for_function("() => document.querySelector('#device').textContent.startsWith('<img')")
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 1  # of the one stream
    assert page.locator(".name span").first.inner_text() == evil
    assert page.problems == []


def test_zones_and_lines_are_drawn_where_they_are(service, page):
    page.goto(service.url)
    wait_for_picture(page, "east")
    found = card(page, "east")
    assert found.locator("svg .zone").get_attribute("points") == "0.1,0.5 0.9,0.5 0.5,1"
    assert found.locator("svg .line").get_attribute("points") == "0,0.6 1,0.6"
    assert found.locator(".tag").all_inner_texts() == ["forecourt", "gate"]
    assert card(page, "west").locator("svg .zone").count() == 0
    picture, drawn = (found.locator(one).bounding_box() for one in (".view img", ".view svg"))
    assert drawn == pytest.approx(picture, abs=1)


def test_a_stream_that_a_reload_brings_is_shown_with_its_zones_and_one_that_goes_is_gone(service, page):
    page.goto(service.url)
    wait_for_picture(page, "east")
    content = json.loads(service.pipeline.read_text())
    east, west, gone = content["streams"]
    content["streams"] = [west, {**east, "id": "north"}, gone]
    service.pipeline.write_text(json.dumps(content))
    service.reload.set()
    wait_for_picture(page, "north")
    assert card(page, "north").locator("svg .zone").count() == 1
    page.wait_for_function("() => document.querySelectorAll('.stream').length === 3", timeout=60_000)
    assert card(page, "east").count() == 0


def draw(page, found, button, points):
    found.get_by_role("button", name=button).click()
    box = found.locator("svg").bounding_box()
    for x, y in points:
        page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    if button != "draw a line":
        found.get_by_role("button", name="done").click()


def pasted(folder, stream, text):
    """Read the keys of a stream from the text of the page, in a pipeline file."""
    rows = "".join(f"    {row}\n" for row in text.splitlines())
    head = "version: 1\npublish: {jsonl: out.jsonl}\nmodel: {onnx: tiny.onnx}\n"
    (folder / "drawn.yaml").write_text(f"{head}streams:\n  - id: {stream}\n    uri: a.mp4\n{rows}")
    for name in ("tiny.onnx", "a.mp4"):
        (folder / name).touch()
    return load_pipeline(folder / "drawn.yaml").config.streams[0]


def test_what_is_drawn_is_yaml_that_a_pipeline_takes(service, page, tmp_path):
    page.set_viewport_size(PHONE)
    page.goto(service.url)
    wait_for_picture(page, "west")
    found = card(page, "west")
    zone, line = [(0.25, 0.5), (0.75, 0.5), (0.5, 0.9)], [(0.1, 0.2), (0.9, 0.4)]
    ignored, black = [(0.1, 0.1), (0.3, 0.1), (0.2, 0.3)], [(0.6, 0.1), (0.9, 0.1), (0.9, 0.3)]
    draw(page, found, "draw a zone", zone)
    draw(page, found, "draw a line", line)
    draw(page, found, "ignore a part", ignored)
    draw(page, found, "black out a part", black)
    assert "large" not in found.get_attribute("class")  # a tap on the picture drew, and did nothing else

    stream = pasted(tmp_path, "west", found.locator("pre").inner_text())
    tracking = stream.tracking
    assert [one.id for one in (*tracking.zones, *tracking.lines)] == ["zone-1", "line-1"]
    drawn = (*tracking.zones[0].polygon, tracking.lines[0].start, tracking.lines[0].end)
    for got, wanted in zip(
        (*drawn, *stream.ignore[0].polygon, *stream.black[0].polygon), zone + line + ignored + black, strict=True
    ):
        assert tuple(got) == pytest.approx(wanted, abs=0.01)

    found.get_by_role("button", name="forget").click()
    assert not found.locator("pre").is_visible()
    assert found.locator("svg .draft").count() == 0


def test_what_is_drawn_joins_what_the_pipeline_has(service, page, tmp_path):
    page.goto(service.url)
    wait_for_picture(page, "east")
    found = card(page, "east")
    draw(page, found, "draw a zone", [(0.25, 0.1), (0.75, 0.1), (0.5, 0.4)])
    draw(page, found, "draw a zone", [(0.3, 0.1), (0.7, 0.1), (0.5, 0.3)])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    found.get_by_role("button", name="copy").click()
    page.wait_for_function(
        "button => button.textContent === 'copied'", arg=found.get_by_text("copied").element_handle()
    )

    tracking = pasted(tmp_path, "east", page.evaluate("() => navigator.clipboard.readText()")).tracking
    before = load_pipeline(service.pipeline).config.streams[0].tracking
    assert tracking.zones[0] == before.zones[0]
    assert tracking.lines == before.lines
    assert [one.id for one in tracking.zones] == ["forecourt", "zone-1", "zone-2"]
    assert tracking.lost_s == before.lost_s == 2.5


def test_a_picture_grows_where_it_is_clicked_and_shrinks_again(service, page):
    page.set_viewport_size({"width": 1200, "height": 800})
    page.goto(service.url)
    wait_for_picture(page, "west")
    view = card(page, "west").locator(".view")
    small = view.bounding_box()["width"]
    view.click()
    assert view.bounding_box()["width"] > 2 * small
    view.click()
    assert view.bounding_box()["width"] == small


def test_the_first_picture_is_no_error(service, page):
    answers = []
    page.on("response", lambda answer: answers.append(answer.status))
    page.goto(service.url)
    wait_for_picture(page, "east")
    assert max(answers) < 400


def test_nothing_comes_from_anywhere_else(service, page):
    page.goto(service.url)
    wait_for_picture(page, "east")
    assert {url for url in page.asked if not url.startswith(service.url)} == set()


def test_a_phone_shows_it_without_scrolling_sideways(service, page):
    page.set_viewport_size(PHONE)
    page.goto(service.url)
    wait_for_picture(page, "east")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]
    broken = """() => [...document.querySelectorAll("td:first-child")].map(cell => {
      cell.nextSibling.textContent = "2c74b11c8ae9 rolled-back 2026-11-26T05:26:22Z: a long reason ".repeat(3);
      const range = document.createRange(); range.selectNodeContents(cell);
      return [cell.textContent, range.getClientRects().length];
    }).filter(([text, lines]) => lines > text.trim().split(/\\s+/).length)"""
    assert page.evaluate(broken) == []  # a name is not broken within a word


def test_pictures_are_made_only_while_somebody_looks(service, page):
    assert service.pictures.encoded == 0
    page.goto(service.url)
    wait_for_picture(page, "west")
    before = service.pictures.encoded
    wait_until(lambda: service.pictures.encoded > before, what="the picture is made anew while it is looked at")
    page.goto("about:blank")
    after = service.pictures.encoded
    # As many accounts as would take twenty pictures, were somebody looking.
    turns = json.loads(ask(service.port, "/status.json")[2])["streams"][0]["decoded"]
    wait_until(
        lambda: json.loads(ask(service.port, "/status.json")[2])["streams"][0]["decoded"] > turns + 100,
        what="a hundred more frames",
    )
    assert service.pictures.encoded <= after + 2  # what was being asked for when the page went


def test_what_is_far_below_is_not_asked_for(service, page):
    page.set_viewport_size({"width": 360, "height": 200})
    page.goto(service.url)
    wait_for_picture(page, "east")
    assert not any("/pictures/west" in url for url in page.asked)


def test_a_camera_that_is_down_is_not_asked_for_and_its_picture_is_of_the_past(service, page):
    page.goto(service.url)
    wait_for_picture(page, "west")
    wait_until(lambda: card(page, "gone").locator(".pill.bad").count(), what="the camera is shown as down")
    assert not any("/pictures/gone" in url for url in page.asked)
    assert [card(page, stream).locator(".past").count() for stream in ("west", "gone")] == [0, 1]


def test_another_page_can_neither_frame_nor_read_nor_show_it(service, page, browser):
    foreign = f"http://localhost:{service.port}/"  # another origin than 127.0.0.1
    page.goto(service.url)
    wait_for_picture(page, "east")
    page.route("**/evil", lambda route: route.fulfill(body="<title>evil</title>", content_type="text/html"))
    page.goto(service.url + "evil")
    found = page.evaluate(
        """async url => {
          const image = new Promise(done => {
            const one = new Image(); one.onload = () => done("shown"); one.onerror = () => done("nothing");
            one.src = url + "pictures/east.jpg";
          });
          const text = fetch(url + "status.json").then(() => "read", () => "nothing");
          return [await image, await text];
        }""",
        foreign,
    )
    assert found == ["nothing", "nothing"]
