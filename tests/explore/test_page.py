"""The page in a real browser."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from matplotlib.path import Path
from PIL import Image

from unweave.explore import write_static_page

POSITIONS = """() => [...document.querySelectorAll('canvas')].map((canvas) => {
  const box = canvas.getBoundingClientRect(), n = canvas.scatterplot.get('points').length;
  return Array.from({ length: n }, (_, i) => {
    const [x, y] = canvas.scatterplot.getScreenPosition(i);
    return [box.left + x, box.top + y];
  });
})"""
SELECTED = "() => [...document.querySelectorAll('canvas')].map((c) => c.scatterplot.get('selectedPoints'))"

RINGS = """() => [...document.querySelectorAll('.ring:not([hidden])')].map((ring) => {
  const box = ring.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})"""


@pytest.fixture(scope="session")
def plain_files(index, maps, tmp_path_factory):
    """The address of the page as plain files."""
    folder = tmp_path_factory.mktemp("plain") / "site"
    write_static_page(index, maps, folder, progress=False)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def page(browser, site):
    """A page of which every error is a failure, and every request that leaves this machine."""
    opened = browser.new_page(viewport={"width": 1200, "height": 800})
    wrong = []
    opened.on("console", lambda entry: wrong.append(entry.text) if entry.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on(
        "request",
        lambda request: (
            None if request.url.startswith((site, "http://127.0.0.1:", "data:", "blob:")) else wrong.append(request.url)
        ),
    )
    opened.wrong = wrong
    yield opened
    opened.close()
    assert not wrong


def visit(page, address):
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    return page


def rows(page, place):
    return [int(row) for row in page.eval_on_selector_all(f"{place} .hit", "all => all.map((x) => x.dataset.row)")]


def wait_for_rows(page, place, expected):
    expected = list(map(int, expected))
    script = "([place, expected]) => { const found = [...document.querySelectorAll(place + ' .hit')].map((x) => +x.dataset.row); return expected.every((row, i) => row === found[i]); }"  # noqa: E501
    page.wait_for_function(script, arg=[place, expected], timeout=5000)
    assert rows(page, place)[: len(expected)] == expected


def found(index, query, weights, **options):
    return [hit.row for hit in index.search(query, weights=weights, k=24, **options)]


def clear_point(positions):
    """A point that no other is near in the first map."""
    points = np.array(positions[0])
    gaps = np.linalg.norm(points[:, None] - points, axis=-1) + 1e9 * np.eye(len(points))
    return int(gaps.min(1).argmax())


def test_hover_and_click_in_one_map_act_on_all(page, site, index):
    visit(page, site)
    positions = page.evaluate(POSITIONS)
    row = clear_point(positions)
    page.mouse.move(*positions[0][row], steps=3)
    page.wait_for_selector(f"#tip:not([hidden])[data-row='{row}']")
    assert page.get_attribute("#tip img", "src").startswith(f"thumbnail/{row}?")
    page.mouse.click(*positions[0][row])
    wait_for_rows(page, ".mix", found(index, row, {"content": 1}))
    assert page.evaluate(SELECTED) == [[row]] * 3
    assert index.path(row) in page.inner_text("#caption")
    for space in index.spaces:
        wait_for_rows(page, f".column[data-space={space}]", found(index, row, {space: 1}))


def test_a_slider_ranks_again_and_the_address_restores_the_view(page, site, index):
    visit(page, site + "/#row=7")
    before = found(index, 7, {"content": 1})
    wait_for_rows(page, ".mix", before)
    page.locator("input[type=range][data-space=color]").fill("-0.5")
    after = found(index, 7, {"content": 1, "color": -0.5})
    assert after != before
    wait_for_rows(page, ".mix", after)
    floor = round(index.search(7, weights={"content": 1}, k=10)[-1].scores["content"], 2)
    page.locator("input[type=number][data-space=content]").fill(str(floor))
    floored = found(index, 7, {"content": 1, "color": -0.5}, minimum={"content": floor})
    assert floored != after
    wait_for_rows(page, ".mix", floored)
    address = page.url
    page.goto("about:blank")
    visit(page, address)
    wait_for_rows(page, ".mix", floored)
    assert page.input_value("input[type=range][data-space=color]") == "-0.5"
    assert page.evaluate(SELECTED) == [[7]] * 3


def test_a_filter_leaves_images_of_a_class_and_of_a_name(page, site, index):
    visit(page, site + "/#row=7")
    page.select_option("#class", "second")
    wait_for_rows(page, ".mix", found(index, 7, {"content": 1}, where="label = 'second'"))
    page.fill("#name", "11")
    expected = [row for row in range(len(index)) if "second" in index.path(row) and "11" in index.path(row)]
    page.wait_for_function(f"document.querySelector('#shown').textContent.startsWith('{len(expected)} of')")
    wait_for_rows(page, ".mix", found(index, 7, {"content": 1}, where="label = 'second' and path like '%11%'"))
    shown = page.evaluate("document.querySelector('canvas').scatterplot.get('filteredPoints')")
    assert sorted(shown) == expected


def test_a_lasso_exports_the_paths_inside_and_is_restored(page, site, index):
    visit(page, site)
    positions = np.array(page.evaluate(POSITIONS)[1])
    order = positions[:, 0].argsort()
    x = positions[order, 0]
    middle = 30 + int(np.diff(x[30:90]).argmax())
    cut, inside = (x[middle] + x[middle + 1]) / 2, {index.path(row) for row in order[: middle + 1].tolist()}
    box = page.locator("canvas[data-space=color]").bounding_box()
    left, top, bottom = box["x"] + 2, box["y"] + 2, box["y"] + box["height"] - 2
    page.keyboard.press("l")
    corners = [(left, top), (cut, top), (cut, bottom), (left, bottom), (left, top)]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner, steps=2)
        page.wait_for_timeout(20)
    page.mouse.up()
    page.wait_for_selector("#region:not([hidden])")
    with page.expect_download() as download:
        page.click("#export")
    with open(download.value.path()) as file:
        assert set(file.read().splitlines()) == inside
    address, text = page.url, page.inner_text("#region-count")
    page.goto("about:blank")
    visit(page, address)
    page.wait_for_selector("#region:not([hidden])")
    assert page.inner_text("#region-count") == text
    assert sorted(page.evaluate(SELECTED)[0]) == sorted(order[: middle + 1].tolist())


@pytest.mark.parametrize("scale", [1, 0.02])
def test_a_lasso_of_many_corners_holds_the_images_that_were_drawn_around(page, site, index, maps, scale):
    visit(page, site)
    points = maps.points["color"] * 0.95  # the page leaves a margin
    angles = np.linspace(0, 2 * np.pi, 301)[:-1]
    radii = scale * np.where(np.arange(300) // 5 % 2, 0.25, 0.95)  # 30 spikes
    centre = 0 if scale == 1 else points[clear_point(page.evaluate(POSITIONS)[1:])]
    drawn = centre + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
    inside = Path(drawn).contains_points(points)
    assert 0 < inside.sum() < len(index)
    page.evaluate(
        "(drawn) => document.querySelectorAll('canvas')[1].scatterplot.lassoSelect(drawn, { isGl: true })",
        drawn.tolist(),
    )
    for _ in range(2):
        page.wait_for_selector("#region:not([hidden])")
        with page.expect_download() as download:
            page.click("#export")
        with open(download.value.path()) as file:
            assert set(file.read().splitlines()) == {index.path(row) for row in np.flatnonzero(inside).tolist()}
        address = page.url
        page.goto("about:blank")
        visit(page, address)
    assert len(address) < 3000


@pytest.mark.parametrize("inside", [True, False])
def test_a_click_marks_the_image_in_every_map_beside_a_region(page, site, index, maps, inside):
    visit(page, site + "/#w=content:1&region=content:-1,-1;0,-1;0,1;-1,1")
    page.wait_for_selector("#region-images .hit")
    region = np.flatnonzero(maps.points["content"][:, 0] < 0).tolist()
    positions = page.evaluate(POSITIONS)
    points = np.array(positions[0])
    gaps = np.linalg.norm(points[:, None] - points, axis=-1) + 1e9 * np.eye(len(points))
    row = max((row for row in range(len(index)) if (row in region) == inside), key=lambda row: gaps[row].min())
    page.mouse.move(*positions[0][row], steps=3)
    page.wait_for_selector(f"#tip:not([hidden])[data-row='{row}']")
    page.mouse.click(*positions[0][row])
    wait_for_rows(page, ".mix", found(index, row, {"content": 1}))
    assert [sorted(marked) for marked in page.evaluate(SELECTED)] == [sorted({*region, row})] * 3
    rings = page.evaluate(RINGS)
    np.testing.assert_allclose(rings, [places[row] for places in positions], atol=1)
    page.mouse.move(positions[0][row][0] + 40, positions[0][row][1])
    page.mouse.wheel(0, -300)
    page.wait_for_function(f"(x) => Math.abs(({RINGS})()[0][0] - x) > 5", arg=rings[0][0])
    page.wait_for_timeout(300)
    np.testing.assert_allclose(page.evaluate(RINGS), [places[row] for places in page.evaluate(POSITIONS)], atol=1)
    page.click("#clear")
    assert page.evaluate(SELECTED) == [[row]] * 3
    np.testing.assert_allclose(page.evaluate(RINGS), [places[row] for places in page.evaluate(POSITIONS)], atol=1)


def test_an_uploaded_picture_is_the_query(page, site, index, sprite_folder, tmp_path):
    visit(page, site)
    page.set_input_files("#file", sprite_folder / "first" / "005.png")
    wait_for_rows(page, ".mix", [index.find("first/005.png")])
    assert page.locator("#picture").evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 64
    Image.open(sprite_folder / "second" / "077.png").save(tmp_path / "picture.tiff")  # the browser cannot read it
    page.set_input_files("#file", tmp_path / "picture.tiff")
    wait_for_rows(page, ".mix", [index.find("second/077.png")])


def test_a_refused_picture_is_explained_without_an_error_in_the_console(page, site, sprite_folder, tmp_path):
    good = (sprite_folder / "first" / "005.png").read_bytes()
    Image.new("RGB", (1200, 1000)).save(tmp_path / "pixels.png")
    (tmp_path / "large.png").write_bytes(good + bytes(1_000_000))
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    (tmp_path / "half.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "text.txt").write_bytes(b"no picture")
    visit(page, site)
    for name, reason in {
        "pixels.png": "1,000,000 pixels",
        "large.png": "larger than 1 MB",
        "broken.png": "broken.png",
        "text.txt": "text.txt",
        "half.png": "half.png",
    }.items():
        page.set_input_files("#file", tmp_path / name)
        page.wait_for_function("(text) => document.querySelector('#message').textContent.includes(text)", arg=reason)


def test_keys_and_lists(page, site, index):
    visit(page, site + "/#row=7")
    page.keyboard.press("ArrowRight")
    wait_for_rows(page, ".mix", found(index, 8, {"content": 1}))
    page.locator(".mix .hit").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    second = found(index, 8, {"content": 1})[1]
    wait_for_rows(page, ".mix", found(index, second, {"content": 1}))
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "name"
    page.click("#duplicates")
    page.wait_for_selector("#list .group")
    groups = page.eval_on_selector_all(
        "#list .group", "all => all.map((g) => [...g.querySelectorAll('.hit')].map((x) => +x.dataset.row))"
    )
    assert sorted(map(sorted, groups)) == sorted(map(sorted, index.duplicates("content")))
    page.click("#outliers")
    page.wait_for_function("!document.querySelector('#list .group') && document.querySelector('#list .hit')")
    assert rows(page, "#list") == [row for row, _ in index.outliers("content", 50)]


@pytest.mark.parametrize("kind", ["site", "plain_files"])
def test_a_list_of_duplicates_says_where_it_ends(page, kind, request):
    image = {"row": 0, "path": "0.png", "class": ""}
    server = {"groups": [[image, image]] * 200, "sizes": [2] * 200, "found": 1234}
    plain = {"groups": [[0, 1]] * 1234, "outliers": []}
    page.route("**/api/duplicates/content", lambda route: route.fulfill(json=server))
    page.route("**/data/lists-0.json", lambda route: route.fulfill(json=plain))
    visit(page, request.getfixturevalue(kind) + "/#list=duplicates:content")
    page.wait_for_selector("#list .group")
    assert page.locator("#list .group").count() == 200
    assert {"1,234", "200"} <= set(page.inner_text("#list-count").split())
    page.wait_for_load_state("networkidle")
    page.goto("about:blank")


def test_a_phone_shows_the_page_without_scrolling_sideways(page, site):
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    visit(page, site + "/#row=7")
    page.wait_for_selector(".mix .hit")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("kind", ["site", "plain_files"])
def test_a_region_of_many_images_does_not_widen_the_page(page, index, kind, width, request):
    page.set_viewport_size({"width": width, "height": 800})
    corners = "-1,-1;1,-1;1,1;-1,1"
    visit(page, f"{request.getfixturevalue(kind)}/#row=7&w=content:1&region=content:{corners}")
    page.wait_for_selector(".mix .hit")
    page.wait_for_selector("#region-images .hit")
    assert len(rows(page, "#region-images")) == 60
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.wait_for_load_state("networkidle")
    page.goto("about:blank")


def test_plain_files_rank_as_the_server_does(page, index, plain_files):
    visit(page, f"{plain_files}/#row=7&w=content:1,color:-0.5&class=second")
    wait_for_rows(page, ".mix", found(index, 7, {"content": 1, "color": -0.5}, where="label = 'second'"))
    assert page.is_hidden("#upload")
    page.wait_for_load_state("networkidle")
    page.goto("about:blank")
