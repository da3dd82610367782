"""Renders an overview as an HTML page that works without scripts.

`document` renders the whole page, `live_part` the part that changes. The event stream sends the latter, so a page that
was updated equals a page that was loaded.

Accessibility: tables have captions and column headers, graphics have a text, and a state has a shape and a word
besides its colour. There are no inline scripts and styles, because the content security policy forbids them; bars are
SVG, whose sizes are attributes.
"""

import msgspec

from runyard.web.elements import shape
from runyard.web.html import Child, Html, join, tag
from runyard.web.sections import (
    alarms_section,
    finished_section,
    hosts_section,
    pools_section,
    recoveries_section,
    runners_section,
    running_section,
    source_line,
    totals_section,
    verdict_section,
    waiting_section,
)
from runyard.web.values import Overview

TITLE = "runyard"
_DOCTYPE = Html("<!doctype html>\n")


class Assets(msgspec.Struct, frozen=True, kw_only=True):
    """URLs of the static files; each contains a hash of the file's content."""

    style: str
    script: str
    icon: str
    version: str


def document(view: Overview, assets: Assets, *, logout: bool = False) -> Html:
    """Render the whole page; `logout` adds the log-out button."""
    return _shell(
        assets,
        _title(view),
        tag("a", {"class": "skip", "href": "#main"}, "Skip to the fleet"),
        tag(
            "header",
            {"class": "top"},
            _brand(),
            tag(
                "p",
                {"class": "live", "id": "live", "role": "status", "data-state": "still"},
                shape("off"),
                tag("span", {"id": "live-word"}, "reloads every 5 s"),
            ),
            _logout() if logout else None,
        ),
        live_part(view, assets),
        script=True,
    )


def live_part(view: Overview, assets: Assets) -> Html:
    """Render the part of the page that is updated."""
    now = view.at
    return tag(
        "div",
        {
            "id": "app",
            "data-at": f"{view.at:.3f}",
            "data-title": _title(view),
            "data-version": assets.version,
        },
        tag(
            "main",
            {"id": "main"},
            verdict_section(view),
            totals_section(view),
            alarms_section(view.alarms, now),
            tag(
                "div",
                {"class": "columns"},
                tag(
                    "div",
                    {"class": "wide"},
                    pools_section(view.pools, now),
                    waiting_section(view, now),
                    running_section(view, now),
                ),
                tag(
                    "div",
                    {"class": "narrow"},
                    hosts_section(view, now),
                    recoveries_section(view.healed, now),
                ),
            ),
            runners_section(view, now),
            finished_section(view.finished, now),
        ),
        tag(
            "footer",
            {"class": "foot"},
            tag("p", {}, [source_line(source, now) for source in view.sources]),
            tag(
                "p",
                {},
                tag("a", {"href": "/api/v1/overview"}, "JSON"),
                " · ",
                tag("a", {"href": "/openapi.json"}, "OpenAPI"),
            ),
        ),
    )


def login(assets: Assets, *, wrong: bool) -> Html:
    """Render the login form."""
    return _shell(
        assets,
        TITLE,
        tag(
            "main",
            {"class": "login", "id": "main"},
            _brand(),
            tag(
                "form",
                {"method": "post", "action": "/login"},
                tag("label", {"for": "token"}, "Token"),
                tag(
                    "input",
                    {
                        "id": "token",
                        "name": "token",
                        "type": "password",
                        "autocomplete": "current-password",
                        "required": True,
                        "autofocus": True,
                        "aria-describedby": "hint",
                    },
                ),
                tag("button", {"type": "submit"}, "Log in"),
                tag(
                    "p",
                    {"id": "hint", "class": "bad" if wrong else "muted"},
                    "Wrong token."
                    if wrong
                    else "Use the link that 'runyard dashboard' prints, or the token of --dashboard-token-file.",
                ),
            ),
        ),
        script=False,
    )


def _shell(assets: Assets, title: str, *body: Child, script: bool) -> Html:
    reload = tag("noscript", {}, tag("meta", {"http-equiv": "refresh", "content": "5"}))
    return join(
        _DOCTYPE,
        tag(
            "html",
            {"lang": "en"},
            tag(
                "head",
                {},
                tag("meta", {"charset": "utf-8"}),
                tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
                tag("meta", {"name": "color-scheme", "content": "light dark"}),
                tag("meta", {"name": "robots", "content": "noindex"}),
                tag("title", {}, title),
                tag("link", {"rel": "icon", "type": "image/svg+xml", "href": assets.icon}),
                tag("link", {"rel": "stylesheet", "href": assets.style}),
                join(reload, tag("script", {"src": assets.script, "defer": True}))
                if script
                else None,
            ),
            tag("body", {}, *body),
        ),
    )


def _brand() -> Html:
    mark = tag(
        "svg",
        {"class": "mark", "viewBox": "0 0 16 16", "aria-hidden": "true"},
        tag("rect", {"x": "1", "y": "1", "width": "6", "height": "6", "rx": "1.5"}),
        tag("rect", {"x": "9", "y": "1", "width": "6", "height": "6", "rx": "1.5"}),
        tag("rect", {"x": "1", "y": "9", "width": "6", "height": "6", "rx": "1.5"}),
        tag("circle", {"class": "lit", "cx": "12", "cy": "12", "r": "3"}),
    )
    return tag("a", {"class": "brand", "href": "/"}, mark, TITLE)


def _logout() -> Html:
    button = tag("button", {"type": "submit", "class": "plain"}, "Log out")
    return tag("form", {"method": "post", "action": "/logout"}, button)


def _title(view: Overview) -> str:
    if view.verdict.tone in {"bad", "warn"}:
        return f"! {view.verdict.title} · {TITLE}"
    return f"({view.totals.waiting}) {TITLE}" if view.totals.waiting else TITLE
