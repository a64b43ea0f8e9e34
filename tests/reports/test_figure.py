"""Charts are data in the page, drawn by a library that is in the page, too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from markupsafe import Markup

from reports import figure
from reports.page import Headline, Section, render

HEADLINE = Headline("pass", "4 cases", ())
LINES = pd.DataFrame(
    {
        "run": ["a </script><b>", "b"],
        "revision": ["x", "y"],
        "started": ["2026-11-20T00:00:00+00:00", "2026-11-21T00:00:00+00:00"],
        "value": [1.0, 2.0],
    }
)


def chart() -> Markup:
    """A chart with a hostile text."""
    return figure.embed(figure.trend(LINES, "cases"), 'says "<i>"')


def test_a_chart_has_a_name_and_ends_no_script() -> None:
    """Its data may hold anything; a screen reader reads the sentence."""
    html = chart()
    assert 'role="img" aria-label="says &#34;&lt;i&gt;&#34;"' in html
    (spec,) = re.findall(r"<script[^>]*>(.*?)</script>", html, re.S)
    values = next(iter(json.loads(spec)["datasets"].values()))
    assert values[0]["run"] == "a </script><b>"


def test_colours_are_those_of_the_page() -> None:
    """So that a switch of the theme recolours the drawing at once."""
    style = Path(figure.__file__).with_name("page.css").read_text()
    for colour in re.findall(r"var\((--\w+)\)", chart()):
        assert f"{colour}: light-dark(" in style, colour


def test_only_a_page_with_charts_carries_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is most of the page."""
    monkeypatch.setattr("reports.page.library", lambda: Markup("the library"))
    table = pd.DataFrame({"x": [1]})
    assert "the library" not in render("t", HEADLINE, [Section("A", "says", table)])
    assert "the library" in render("t", HEADLINE, [Section("A", "says", table, figure=chart())])


def test_the_library_is_kept_on_disk_unless_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bundling takes two seconds; a torn file must not be run."""
    made: list[str] = []

    def bundle(snippet: str) -> str:
        made.append(snippet)
        return "1 </script 2"

    monkeypatch.setenv("FUSER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    for times in (1, 1):
        figure.library.cache_clear()
        assert figure.library() == "1 <\\/script 2"
        assert len(made) == times
    (path,) = (tmp_path / "cache").iterdir()
    path.write_text(path.read_text()[:-1])
    figure.library.cache_clear()
    assert figure.library() == "1 <\\/script 2"
    assert len(made) == 2
    figure.library.cache_clear()
