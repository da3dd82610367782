"""Builds the recurring elements of the page: states, bars, tables, times."""

import re
from collections.abc import Sequence

from runyard.web.durations import format_age, format_time
from runyard.web.html import Child, Html, tag
from runyard.web.values import Host, Pool, Tone

PIPS = 40  # up to this many runners are drawn one by one
PLACES = 12  # up to this many Pods of a host are drawn one by one
_STEP = 10
_WIDE = 400
# A longer word does not fit into a column, so that the browser would have to break it.
LONGEST_WORD = 32
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def shape(tone: Tone) -> Html:
    """Build the symbol of a state; it differs in shape and not only in colour."""
    return tag("span", {"class": f"shape shape-{tone}", "aria-hidden": "true"})


def state(tone: Tone, text: str) -> Html:
    """Build a state: its symbol and its text."""
    shown = shorten_words(text)
    title = text if shown != text else None
    return tag(
        "span",
        {"class": f"state tone-{tone}", "title": title},
        shape(tone),
        tag("span", {}, shown),
    )


def shorten_words(text: str) -> str:
    """Replace the end of each long word by an ellipsis."""
    return _LONG_WORD.sub(lambda found: f"{found[0][: LONGEST_WORD - 1]}…", text)


def cut(text: str, kind: str = "") -> Html:
    """Build a text on one line that is cut at the end if there is no space; its whole is the tooltip."""
    return tag("span", {"class": f"cut {kind}".strip(), "title": text}, text)


def name(text: str, kind: str, url: str = "") -> Html:
    """Build a name that wraps between its words, with a link if it has an address; its whole is the tooltip."""
    return tag("span", {"class": f"name {kind}", "title": text}, link(url, shorten_words(text)))


def link(url: str, text: str) -> Child:
    """Build a link to another site, which gets no access to this page; text that is no address is not linked."""
    if not url.startswith(("https://", "http://")):
        return text
    return tag("a", {"href": url, "target": "_blank", "rel": "noopener noreferrer"}, text)


def age(moment: float | None, now: float) -> Html:
    """Build a time element that shows its age; the script keeps it up to date."""
    if moment is None:
        return tag("span", {"class": "muted"}, "–")
    return tag(
        "time",
        {"datetime": format_time(moment), "title": format_time(moment), "data-t": f"{moment:.0f}"},
        format_age(moment, now),
    )


def empty(text: str) -> Html:
    """Build the text of an empty section."""
    return tag("p", {"class": "empty"}, text)


def listing(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[tuple[str, *tuple[Child, ...]]],
    *,
    none: str,
    more: int = 0,
) -> Html:
    """Build a table. A row is its key and its cells; a header that begins with `#` marks a column of numbers."""
    name = caption.lower().replace(" ", "-")
    if not rows:
        title = tag("h2", {}, caption)
        return tag("section", {"class": "listing", "data-key": name}, title, empty(none))
    titles = [head.removeprefix("#") for head in heads]
    kinds = ["number" if head.startswith("#") else None for head in heads]
    columns = list(zip(titles, kinds, strict=True))
    return tag(
        "section",
        {"class": "listing", "data-key": name},
        tag(
            "table",
            {"id": name},
            tag("caption", {}, caption),
            tag(
                "thead",
                {},
                tag("tr", {}, [tag("th", {"scope": "col", "class": k}, t) for t, k in columns]),
            ),
            tag("tbody", {}, [_row(row, columns) for row in rows]),
        ),
        tag("p", {"class": "empty"}, f"and {more} more") if more > 0 else None,
    )


def _row(row: tuple[str, *tuple[Child, ...]], columns: Sequence[tuple[str, str | None]]) -> Html:
    cells = [
        tag("td", {"data-label": title, "class": kind}, tag("div", {}, cell) if cell else None)
        for cell, (title, kind) in zip(row[1:], columns, strict=True)
    ]
    return tag("tr", {"data-key": row[0]}, cells)


def bar(of: Pool | Host) -> Html:
    """Build the bar of used and free capacity, with a text alternative."""
    if isinstance(of, Host):
        parts = [("busy", of.used), ("missing", max(0, of.capacity - of.used))]
        return _svg_bar(parts, f"{of.used} of {of.capacity} Pods are used", most=PLACES, wide=120)
    alive = of.busy + of.idle + of.starting
    parts = [
        ("busy", of.busy),
        ("idle", of.idle),
        ("starting", of.starting),
        ("missing", max(0, of.desired - alive)),
        ("other", of.other),
    ]
    label = ", ".join(f"{number} {name}" for name, number in parts if number) or "none"
    return _svg_bar(parts, label, most=PIPS, wide=_WIDE)


def _svg_bar(parts: Sequence[tuple[str, int]], label: str, *, most: int, wide: int) -> Html:
    total = sum(number for _, number in parts)
    if total == 0:
        return tag("span", {"class": "muted"}, "none")
    single = total <= most
    width = total * _STEP if single else wide
    attributes = {
        "class": "bar" if single else "bar whole",
        "viewBox": f"0 0 {width} 12",
        "width": str(width),
        "height": "12",
        "preserveAspectRatio": None if single else "none",
        "role": "img",
        "aria-label": label,
    }
    shapes = _pips(parts) if single else _segments(parts, total, wide)
    return tag("svg", attributes, tag("title", {}, label), shapes)


def _pips(parts: Sequence[tuple[str, int]]) -> list[Html]:
    names = [name for name, number in parts for _ in range(number)]
    return [_pip(name, place * _STEP) for place, name in enumerate(names)]


def _pip(name: str, left: int) -> Html:
    """Draw one runner: busy, idle, starting and missing differ in shape, so colour is not needed."""
    if name == "missing":
        box = (left + 3, 5, 2, 2)
    elif name == "starting":
        box = (left + 1, 7, 6, 4)
    else:
        box = (left + 1, 1, 6, 10)
    return _rect(name, box, rx="1.5" if name != "missing" else "1")


def _segments(parts: Sequence[tuple[str, int]], total: int, wide: int) -> list[Html]:
    shapes: list[Html] = []
    left = 0.0
    for name, number in parts:
        width = wide * number / total
        if number:
            height = {"missing": 2, "starting": 6}.get(name, 10)
            box = (round(left + 0.5, 1), 11 - height, round(max(1.0, width - 1), 1), height)
            shapes.append(_rect(name, box, rx="1.5"))
        left += width
    return shapes


def _rect(name: str, box: tuple[float, float, float, float], *, rx: str) -> Html:
    x, y, width, height = map(str, box)
    return tag(
        "rect",
        {"class": f"pip-{name}", "x": x, "y": y, "width": width, "height": height, "rx": rx},
    )
