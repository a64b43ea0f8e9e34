"""The page is one file, escapes what it shows, and can be read in both themes."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from reports.page import MAX_ROWS, Headline, Link, Section, Share, number, render

STYLE = (Path(__file__).parents[2] / "reports" / "page.css").read_text()
HEADLINE = Headline("pass", "4 cases, no failure", (("Time", "60 s"),))


class Tags(HTMLParser):
    """Collects tags and their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep one tag."""
        self.found.append((tag, dict(attrs)))

    def count(self, tag: str) -> int:
        """Return how many there are of a tag."""
        return sum(name == tag for name, _ in self.found)


def table(rows: int) -> pd.DataFrame:
    """A table with a hostile text."""
    return pd.DataFrame({"case": [f"c{n}" for n in range(rows)], "reason": "<script>x</script>"})


def test_text_of_tables_is_escaped() -> None:
    """A reason may hold anything that a compiler printed."""
    html = render("<title>", HEADLINE, [Section("A", "says <b>", table(2))])
    assert "<script>x" not in html
    assert "says &lt;b&gt;" in html
    assert Tags(html).count("script") == 1


def test_the_page_asks_the_network_for_nothing() -> None:
    """It is read offline, and mailed."""
    html = render("t", HEADLINE, [Section("A", "says", table(2))])
    for tag, attrs in Tags(html).found:
        for name in ("src", "href", "action", "srcset"):
            value = attrs.get(name) or ""
            assert value.startswith(("#", "data:")) or not value, (tag, value)
    assert "@import" not in html
    assert "url(" not in html


def test_long_tables_are_cut_and_say_so() -> None:
    """Ten thousand rows take seconds to open."""
    html = render("t", HEADLINE, [Section("A", "says", table(MAX_ROWS + 7))])
    assert Tags(html).count("tr") == MAX_ROWS + 1
    assert "7 more rows are in the ledger" in html


def test_an_empty_section_is_only_its_sentence() -> None:
    """Nothing to show is a result too."""
    html = render("t", HEADLINE, [Section("A", "0 failures.", pd.DataFrame())])
    assert "0 failures." in html
    assert Tags(html).count("table") == 0


def test_a_wide_heat_table_is_laid_out_in_blocks() -> None:
    """Sixty operations must fit on a screen; every one of them once."""
    counts = pd.DataFrame({"op": [f"op{n}" for n in range(61)], "f32": range(61)})
    html = render("t", HEADLINE, [Section("A", "says", counts, look="heat")])
    tags = Tags(html)
    assert tags.count("table") == 3
    assert tags.count("tr") == 61 + 3
    heats = [int(x) for x in re.findall(r"--heat:(\d+)", html)]
    assert heats == sorted(heats)
    assert heats[-1] == 100


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234567, "1,234,567"), (0.0123, "0.0123"), (12.345, "12.3"), (float("nan"), "")],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    """Three digits say enough of a time."""
    assert number(value) == text


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`.  Source: WCAG 2.2, relative luminance."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def mixed(front: str, back: str, share: float) -> str:
    """`color-mix(in srgb, front share, back)`."""
    pairs = [(int(front[n : n + 2], 16), int(back[n : n + 2], 16)) for n in (1, 3, 5)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def contrast(a: str, b: str) -> float:
    """Contrast of two colours.  Source: WCAG 2.2, contrast ratio."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_all_text_has_enough_contrast(theme: int) -> None:
    """4.5 is what people with weak eyes need, in both themes."""
    found = dict(re.findall(r"--(\w+): light-dark\((#\w{6}, #\w{6})\)", STYLE))
    colour = {name: pair.split(", ")[theme] for name, pair in found.items()}
    statuses = ("pass", "fail", "unknown", "unsupported", "error", "invalid")
    for front in ("ink", "soft", "link"):
        for back in ("paper", "card", "sunk"):
            assert contrast(colour[front], colour[back]) >= 4.5, (front, back)
    for status in statuses:
        assert contrast(colour[status], colour["card"]) >= 4.5, status
        pill = mixed(colour[status], colour["card"], 0.11)
        assert contrast(colour[status], pill) >= 4.5, status
    hottest = mixed(colour["warm"], colour["card"], 0.8)
    assert contrast(colour["ink"], hottest) >= 4.5


def test_a_share_that_is_not_all_stands_out_and_so_does_a_hole() -> None:
    """A mutant that survived, and a legal cell that nothing met."""
    cells = pd.DataFrame(
        {"sync": ["a", "b"], "x": [Share(2, 2), Share(1, 3)], "y": [0, None]}, dtype=object
    )
    html = render("t", HEADLINE, [Section("A", "says", cells, look="heat")])
    found = [attrs["class"] for tag, attrs in Tags(html).found if tag == "td"]
    assert found == ["hot", "empty", "missed", "none"]
    assert ">1/3</td>" in html


def test_pages_know_each_other() -> None:
    """Of one page alone there is nothing to link to."""
    html = render("t", HEADLINE, [], Link("Performance", "performance.html"))
    assert '<a href="performance.html">Performance</a>' in html
    assert 'aria-label="Pages"' not in render("t", HEADLINE, [])
