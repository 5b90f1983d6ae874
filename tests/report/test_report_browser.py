"""The page in a real browser: a reader loads it, sorts, picks, slides and follows links, with and without a pointer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teb.cli import run_command

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = ROOT / "results" / "runs.jsonl"
HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
LACKED = "maze2d/square-bottleneck"
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of the stored runs but those of one maze, and of one whose label is markup and that never ended."""
    folder = tmp_path_factory.mktemp("report")
    stored = REGISTRY.read_text(encoding="utf-8").splitlines()
    lines = [line for line in stored if json.loads(line)["env"] != LACKED]
    odd = json.loads(lines[0]) | {
        "run_id": "0dd",
        "label": HOSTILE,
        "finished": False,
        "config": {"<i>": "<i>"},
    }
    (folder / "runs.jsonl").write_text("\n".join([*lines, json.dumps(odd)]), encoding="utf-8")
    out = folder / "report.html"
    assert run_command(["report", "--results", str(folder), "--out", str(out), "--studies", "maze2d"]) == 0
    return out.as_uri()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The loaded page; what it said on the console, threw or asked for fails the test at its end."""
    context = browser.new_context(**getattr(request, "param", {"viewport": {"width": 1280, "height": 900}}))
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("request", lambda asked: complaints.append(asked.url) if asked.url != address else None)
    page.goto(address)
    ready(page)
    yield page
    context.close()
    assert not complaints


def ready(page: Any) -> None:
    page.wait_for_selector("html[data-ready=yes]")


def go(page: Any, place: str) -> None:
    page.evaluate("place => { location.hash = place }", place)
    page.wait_for_timeout(30)  # the page follows its address in an event of its own


def first_run(page: Any) -> str:
    go(page, "runs")
    return page.locator("tbody a").first.get_attribute("href").removeprefix("#")


def column(page: Any, place: int) -> list[str]:
    return page.locator("table").first.locator(f"tbody tr > :nth-child({place})").all_inner_texts()


def coloured(page: Any) -> int:
    """Pixels of all maps that are neither ground nor wall nor outside."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".map canvas")].reduce((sum, canvas) => {
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const pen = copy.getContext("2d", { willReadFrequently: true });
            pen.drawImage(canvas, 0, 0);
            const data = pen.getImageData(0, 0, copy.width, copy.height).data;
            let count = 0;
            for (let i = 0; i < data.length; i += 4) {
                const grey = data[i] === data[i + 1] && data[i + 1] === data[i + 2];
                if (data[i + 3] === 255 && !grey) count += 1;
            }
            return sum + count;
        }, 0)"""
    )


DESKTOP = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SMALL = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("opened", [DESKTOP, PHONE, SMALL], indirect=True, ids=["desktop", "phone", "small"])
def test_every_view_fits_its_window(opened: Any) -> None:
    for place in ("overview", "study=maze2d", "study=maze2d-paper", "runs", first_run(opened)):
        go(opened, place)
        assert opened.locator("h1").count() == 1
        wide, window = opened.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= window, place


def test_a_column_sorts_both_ways_and_keeps_what_is_missing_last(opened: Any) -> None:
    go(opened, "study=maze2d")
    for place, header in ((2, "square-a"), (3, "square-b")):
        button = opened.get_by_role("button", name=header, exact=True)
        head = opened.locator("thead th").nth(place - 1)
        for direction, turned in (("descending", True), ("ascending", False)):
            button.click()
            assert head.get_attribute("aria-sort") == direction
            texts = [text.split() for text in column(opened, place)]
            there = [float(words[0]) for words in texts if words[0] != "missing"]
            assert len(there) > 5 and there == sorted(there, reverse=turned)
            assert ["missing"] not in texts[: len(there)]
    assert opened.locator("thead th[aria-sort=ascending]").count() == 1
    assert opened.locator("tr.published .tag").count() == opened.locator("tr.published").count() > 5


def test_picked_methods_are_the_curves_and_the_maps(opened: Any) -> None:
    go(opened, "study=maze2d")
    curves, maps = opened.locator(".stage path.curve[data-name]"), opened.locator("figure.map")
    boxes = opened.locator(".picker input")
    assert curves.count() == maps.count() == opened.locator(".picker input:checked").count() > 0
    opened.get_by_role("button", name="None").click()
    assert (curves.count(), maps.count()) == (0, 0)
    opened.get_by_label("teb-p", exact=True).check()
    assert curves.count() == maps.count() == 1
    before = curves.first.get_attribute("d")
    opened.get_by_label("corridor2").check()
    assert curves.first.get_attribute("d") != before
    opened.get_by_role("button", name="All").click()
    assert curves.count() == maps.count() == boxes.count()
    opened.get_by_label("square-bottleneck").check()
    assert "missing on square-bottleneck" in opened.locator(".stage").inner_text()
    assert (curves.count(), opened.locator(".lack", has_text="missing").count()) == (0, boxes.count())


def test_the_slider_plays_first_visits(opened: Any) -> None:
    go(opened, "study=maze2d")
    slider, shares = opened.locator("#time"), []
    for place in (0, 20, 100, 200):
        slider.fill(str(place))
        shares.append(coloured(opened))
    assert shares == sorted(set(shares)), "the longer the run, the more bins"
    share = opened.locator("figure.map .share").first.inner_text()
    assert 0.1 < float(share) <= 1
    slider.fill("0")
    opened.get_by_role("button", name="Play").click()
    opened.wait_for_timeout(400)
    opened.get_by_role("button", name="Pause").click()
    held = slider.input_value()
    assert int(held) > 0
    opened.wait_for_timeout(150)
    assert slider.input_value() == held
    seeds = opened.locator(".choice select")
    before = coloured(opened)
    seeds.select_option("1")
    assert coloured(opened) != before


def test_a_map_shows_the_coverage_that_its_run_has(opened: Any) -> None:
    go(opened, first_run(opened))
    said = opened.locator(".facts b").inner_text()
    assert opened.locator("figure.map .share").inner_text() == said


def test_everything_can_be_done_with_the_keyboard(opened: Any) -> None:
    keys = opened.keyboard

    def tab_to(selector: str) -> None:
        for _ in range(80):
            keys.press("Tab")
            if opened.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"no Tab leads to {selector}")

    keys.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    tab_to("a[href='#study=maze2d']")
    keys.press("Enter")
    opened.wait_for_selector(".explorer")
    assert opened.evaluate("document.activeElement.tagName") == "H1"
    tab_to("th:nth-child(2) .sort")
    keys.press("Enter")
    assert opened.locator("thead th").nth(1).get_attribute("aria-sort") == "descending"
    tab_to(".segments input")
    keys.press("ArrowRight")
    assert opened.locator(".segments input:checked").get_attribute("value") != "maze2d/square-a"
    keys.press("ArrowLeft")
    tab_to(".picker input")
    curves = opened.locator(".stage path.curve[data-name]").count()
    keys.press("Space")
    assert opened.locator(".stage path.curve[data-name]").count() == curves - 1
    tab_to("svg.chart")
    readout = opened.locator(".readout").first
    before = readout.inner_text()
    keys.press("PageDown")
    assert readout.inner_text() != before
    assert opened.locator(".cursor circle").count() > 0
    tab_to("#time")
    full = coloured(opened)
    keys.press("Home")
    assert coloured(opened) < full


def test_runs_are_found_and_have_an_address(opened: Any) -> None:
    go(opened, "runs")
    opened.get_by_label("Show runs with").fill("teb-p corridor2 seed2")
    rows = opened.locator("tbody tr:visible")
    assert 0 < rows.count() < 20
    assert all("corridor2" in text and "teb-p" in text for text in rows.all_inner_texts())
    rows.first.locator("a").click()
    opened.wait_for_selector("pre")
    opened.reload()
    ready(opened)
    assert "teb train maze2d/corridor2 teb-p" in opened.locator("pre").inner_text()
    assert "learner.backbone.lr" in opened.locator(".pairs").first.inner_text()
    assert opened.locator(".small .chart").count() > 3
    go(opened, "run=nothing")
    assert "No run has the id nothing" in opened.locator("main").inner_text()


def test_text_of_a_record_stays_text(opened: Any) -> None:
    go(opened, "run=0dd")
    assert HOSTILE in opened.locator("h1").inner_text()
    assert "unfinished" in opened.locator(".facts").first.inner_text()
    assert opened.locator("main img, main i, h1 b").count() == 0
