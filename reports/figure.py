"""Plots: Vega-Lite by Altair, drawn by the page without a network, in the colours of its theme.

Every function takes a table and returns a chart; `embed` makes HTML of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import altair as alt
import pandas as pd
import vl_convert
from markupsafe import Markup
from platformdirs import user_cache_path

COLOURS = [f"var(--c{n})" for n in range(1, 9)]
"""Of categories, by the style sheet of the page."""
_ROW = 22
"""CSS pixels of a row of names."""
_SOFT, _INK, _LINE = "var(--soft)", "var(--ink)", "var(--line)"
_FONT = "Inter, 'Segoe UI', system-ui, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
"""That of the page: Vega measures text by itself."""
_TEXT = {"labelFont": _FONT, "titleFont": _FONT, "labelFontSize": 12, "titleFontSize": 12}
_CONFIG = {
    "background": "transparent",
    "view": {"stroke": None},
    "aria": False,  # the box around it is one picture with a name; its table is near
    "font": _FONT,
    "range": {"category": COLOURS},
    "axis": {
        **_TEXT,
        "labelColor": _SOFT,
        "titleColor": _SOFT,
        "titleFontWeight": "normal",
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
        "labelLimit": 170,
    },
    "axisY": {"labelColor": _INK},
    "legend": {
        **_TEXT,
        "labelColor": _INK,
        "titleColor": _SOFT,
        "titleFontWeight": "normal",
        "orient": "top",
        "symbolType": "square",
        "labelLimit": 260,
        "columns": {"expr": "width < 500 ? 1 : 4"},  # names are long, phones are narrow
    },
}

_DATES = alt.Axis(tickCount=6, labelOverlap=True, format="%b %d %H:%M")
Chart = alt.Chart | alt.LayerChart | alt.FacetChart


@cache
def library() -> Markup:
    """Return the JavaScript of Vega-Lite, 0.9 MB; kept on disk, as bundling takes 2 s."""
    folder = Path(os.environ.get("FUSER_CACHE") or user_cache_path("fuser"))
    path = folder / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, ValueError):
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        if hashlib.sha256(text.encode()).hexdigest() == digest:
            return Markup(text)
    text = _inline(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    with suppress(OSError):  # a full disk costs time only
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}", encoding="utf-8")
        half.replace(path)
    return Markup(text)


def embed(chart: Chart, says: str, *, chooses: bool = False) -> Markup:
    """Return HTML of a chart, for a page that has `library`.

    `says` is what a screen reader reads in its place; with `chooses` it has a menu of its own.
    """
    sized = chart.properties(width="container", autosize=alt.AutoSizeParams(type="fit-x"))
    text = json.dumps(sized.to_dict() | {"config": _CONFIG})
    return Markup(
        '<div class="chart">{menu}<div role="img" aria-label="{says}"></div>'
        '<script type="application/json">{spec}</script></div>'
    ).format(
        menu=Markup('<div class="menu"></div>') if chooses else "",
        says=says,
        spec=Markup(_inline(text)),
    )


def _inline(script: str) -> str:
    """Return JavaScript, or JSON, that ends no `<script>` around it."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def spreads(table: pd.DataFrame, limits: dict[str, float]) -> Chart:
    """Draw times as a box of 25..75 % on a line of 5..95 %, with the median, one for each oracle.

    Columns: ``family``, ``oracle``, ``p5``, ``p25``, ``p50``, ``p75``, ``p95`` in milliseconds, and
    ``runs``.  `limits` of an oracle is a dashed line.
    """
    base = alt.Chart(table).encode(
        y=alt.Y("family:N", title=None, sort=None),
        yOffset="oracle:N",
        color=alt.Color("oracle:N", title=None),
        tooltip=[
            "family",
            "oracle",
            "runs",
            *(alt.Tooltip(f"{p}:Q", format=".3~g") for p in ("p5", "p50", "p95")),
        ],
    )
    axis = alt.X("p5:Q", title="milliseconds", scale=alt.Scale(type="log"))
    goals = pd.DataFrame({"oracle": list(limits), "limit": list(limits.values())})
    return alt.layer(
        base.mark_rule(strokeWidth=2).encode(x=axis, x2="p95:Q"),
        base.mark_bar(size=7, cornerRadius=2).encode(x="p25:Q", x2="p75:Q"),
        base.mark_tick(size=11, thickness=3, color=_INK).encode(x="p50:Q", color=alt.value(_INK)),
        alt.Chart(goals)
        .mark_rule(strokeDash=[4, 4])
        .encode(x="limit:Q", color="oracle:N", tooltip=["oracle", "limit"]),
    ).properties(height=alt.Step(_ROW / 2))


def stacks(table: pd.DataFrame, what: str) -> Chart:
    """Draw one bar a ``name``, of its ``part``s, each as long as its ``seconds``."""
    chart: Chart = (
        alt.Chart(table)
        .mark_bar(cornerRadius=2)
        .encode(
            y=alt.Y("name:N", title=None, sort="-x"),
            x=alt.X("sum(seconds):Q", title=what),
            color=alt.Color("part:N", title=None, sort=None),
            tooltip=["name", "part", alt.Tooltip("seconds:Q", format=",.3~r")],
        )
        .properties(height=alt.Step(_ROW))
    )
    return chart


def trend(table: pd.DataFrame, what: str, colour: str | None = None) -> Chart:
    """Draw a ``value`` over the times when runs ``started``; a line for each `colour`."""
    chart: Chart = (
        alt.Chart(table)
        .mark_line(point=alt.OverlayMarkDef(size=50, filled=True), strokeWidth=2)
        .encode(
            x=alt.X("started:T", title=None, axis=_DATES),
            y=alt.Y("value:Q", title=what, scale=alt.Scale(zero=True)),
            color=alt.Color(f"{colour}:N", title=None) if colour else alt.value(COLOURS[0]),
            tooltip=[
                "run",
                alt.Tooltip("revision:N", title="revision"),
                alt.Tooltip("started:T", format="%Y-%m-%d %H:%M"),
                *([colour] if colour else []),
                alt.Tooltip("value:Q", format=",.3~g", title=what),
            ],
        )
        .properties(height=180)
    )
    return chart


def roofline(table: pd.DataFrame, flops_per_s: float, bytes_per_s: float) -> Chart:
    """Draw ``tflops`` reached over ``intensity`` (operations a byte), below the roof of a device.

    Other columns: ``row``, ``says``, ``peer``, ``us``, ``who``.
    """
    least, most = table["intensity"].min() / 1.5, table["intensity"].max() * 1.5
    ridge = flops_per_s / bytes_per_s
    corners = sorted({least, min(max(ridge, least), most), most})
    roof = pd.DataFrame({"intensity": corners})
    roof["tflops"] = (roof["intensity"] * bytes_per_s).clip(upper=flops_per_s) / 1e12
    axis = alt.Scale(type="log", nice=False)
    x = alt.X("intensity:Q", title="operations a byte", scale=axis)
    y = alt.Y("tflops:Q", title="10¹² operations a second", scale=axis)
    points = (
        alt.Chart(table)
        .mark_point(size=70, filled=True, opacity=0.9)
        .encode(
            x=x,
            y=y,
            color=alt.Color("who:N", title=None),
            shape=alt.Shape("who:N", title=None),
            tooltip=[
                "row",
                "says",
                "peer",
                alt.Tooltip("us:Q", format=",.4~g"),
                alt.Tooltip("tflops:Q", format=",.3~r"),
            ],
        )
    )
    return alt.layer(
        alt.Chart(roof).mark_line(color=_SOFT, strokeDash=[6, 3]).encode(x=x, y=y), points
    ).properties(height=360)


def ratios(table: pd.DataFrame) -> Chart:
    """Draw how many times as long each ``peer`` takes as ours, for each ``row``: 10..90 %.

    Columns: ``row``, ``says``, ``peer``, ``low``, ``ratio``, ``high``; rows stand in their order.
    """
    base = alt.Chart(table).encode(
        y=alt.Y("row:N", title=None, sort=None),
        color=alt.Color("peer:N", title=None),
        tooltip=[
            "row",
            "says",
            "peer",
            *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("ratio", "low", "high")),
        ],
    )
    # A peer eight times slower would press all others together.
    scale = alt.Scale(type="log", domain=[0.7, 4], clamp=True, nice=False)
    x = alt.X("ratio:Q", title="time of the peer by ours (right of 1: ours is faster)", scale=scale)
    one = alt.Chart(pd.DataFrame({"ratio": [1.0]}))
    return alt.layer(
        one.mark_rule(color=_INK).encode(x=x),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
        base.mark_point(filled=True, size=60).encode(x=x),
    ).properties(height=alt.Step(_ROW))


def schedules(table: pd.DataFrame) -> Chart:
    """Draw the ``us`` of all ``peer``s of a row that the reader chooses; ``whose`` colours them.

    Columns besides: ``row``, ``low``, ``high``, ``roof``.  Peers stand in the order of the table.
    """
    names = sorted(set(table["row"]))
    menu = alt.binding_select(options=names, name="row ")
    chosen = alt.selection_point(fields=["row"], bind=menu, value=names[0])
    base = alt.Chart(table).encode(y=alt.Y("peer:N", title=None, sort=None))
    bars = (
        base.mark_bar(cornerRadius=2)
        .encode(
            x=alt.X("us:Q", title="microseconds; dashed: roof"),
            color=alt.Color("whose:N", title=None),
            tooltip=["row", "peer", *(alt.Tooltip(f"{n}:Q") for n in ("us", "low", "high"))],
        )
        .add_params(chosen)
    )
    spread = base.mark_rule(strokeWidth=2, color=_INK).encode(x="low:Q", x2="high:Q")
    roof = alt.Chart(table).mark_rule(strokeDash=[4, 4], color=_SOFT).encode(x="max(roof):Q")
    layers = (layer.transform_filter(chosen) for layer in (bars, spread, roof))
    return alt.layer(*layers).properties(height=alt.Step(_ROW))
