"""The drawing is one well-formed SVG that needs nothing and hides nothing."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from witnesses import RING, long

from oracles.witness import Row
from reports.lanes import svg

NAME = "{http://www.w3.org/2000/svg}"


def classes(tree: ElementTree.Element, tag: str) -> list[str]:
    """Classes of all elements of a tag."""
    return [node.get("class", "") for node in tree.iter(NAME + tag)]


def test_every_lane_and_event_is_drawn() -> None:
    """A reader counts on it."""
    tree = ElementTree.fromstring(str(svg(RING)))
    words = [node.text or "" for node in tree.iter(NAME + "text")]
    assert set(RING.lanes) <= set(words)
    assert classes(tree, "line").count("life") == len(RING.lanes)
    assert len(classes(tree, "circle")) == len(RING.rows) - 2
    titles = [node.text for node in tree.iter(NAME + "title")]
    assert titles == [row.text for row in RING.rows]


def test_the_missing_order_is_an_arrow_between_the_two_accesses() -> None:
    """Two diamonds, one dashed path, one caption."""
    tree = ElementTree.fromstring(str(svg(RING)))
    assert classes(tree, "polygon") == ["tip", "hit", "hit"]
    assert classes(tree, "path") == ["order"]
    words = [node.text or "" for node in tree.iter(NAME + "text")]
    assert words.count("nothing orders this") == 1


def test_an_order_that_lacks_a_fence_is_not_called_missing() -> None:
    """The caption says what to add."""
    drawn = str(svg(replace(RING, kind="proxy")))
    assert "no proxy fence between" in drawn
    assert "nothing orders this" not in drawn


def test_text_is_escaped_and_nothing_is_fetched_or_run() -> None:
    """Statements hold `<~`, and the page is read offline."""
    hostile = replace(RING, rows=(Row("load thread", 1, "</svg><script>x</script>"),))
    drawn = str(svg(hostile))
    tree = ElementTree.fromstring(drawn)
    tags = {node.tag.removeprefix(NAME) for node in tree.iter()}
    assert tags <= {
        "svg",
        "style",
        "text",
        "line",
        "g",
        "title",
        "circle",
        "polygon",
        "path",
        "rect",
    }
    assert "url(" not in drawn
    assert "href" not in drawn


def test_drawing_stays_inside_its_box() -> None:
    """What is outside the view box is cut off."""
    for witness in (RING, long(150, 40, 149), replace(RING, rows=())):
        tree = ElementTree.fromstring(str(svg(witness)))
        _, _, width, height = map(float, tree.get("viewBox", "").split())
        for node in tree.iter(NAME + "text"):
            assert 0 <= float(node.get("x", "-1")) <= width
            assert 0 <= float(node.get("y", "-1")) <= height


def test_a_long_witness_says_how_much_is_not_drawn() -> None:
    """Nobody scrolls through thousands of events."""
    drawn = str(svg(long(150, 40, 149)))
    assert "more events, not drawn" in drawn
    assert drawn.count("<circle") < 80


def test_the_last_note_stands_above_what_is_missing() -> None:
    """A long note of the last row takes lines that the drawing has to leave room for."""
    rows = RING.rows[:-1]
    short = replace(RING, rows=(*rows, replace(RING.rows[-1], note="")))
    long_note = replace(RING, rows=(*rows, replace(RING.rows[-1], note="of nobody " * 20)))
    assert _height(svg(long_note)) > _height(svg(short)) + 50


def _height(drawn: str) -> float:
    return float(drawn.partition('viewBox="')[2].split('"')[0].split()[3])
