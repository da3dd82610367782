"""The page: one overview as HTML, complete without any script.

`document` is the whole page, `application` the part of it that changes; the stream of events sends the latter, so
there is one renderer and the page that was loaded and the page that was updated are the same.

Accessible by construction: tables have captions and headed columns, pictures have a text, a state is a shape and a
word before it is a colour. No inline script and no inline style, so the strictest policy holds; bars are SVG, whose
sizes are attributes.
"""

import msgspec

from runyard.web.html import Child, Html, join, tag
from runyard.web.pieces import shape
from runyard.web.sections import (
    alarms_section,
    finished_section,
    healed_section,
    hosts_section,
    pools_section,
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
    """Where the page's own files are; the addresses change with the files' content."""

    style: str
    script: str
    icon: str
    version: str


def document(view: Overview, assets: Assets, *, leave: bool = False) -> Html:
    """The whole page. `leave` adds the way out for somebody who has logged in."""
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
                tag("span", {"id": "live-word"}, "reloads by itself"),
            ),
            _leave() if leave else None,
        ),
        application(view, assets),
        script=True,
    )


def application(view: Overview, assets: Assets) -> Html:
    """What changes."""
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
                    healed_section(view.healed, now),
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
    """The form that asks for the token."""
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
                tag("button", {"type": "submit"}, "Look at the fleet"),
                tag(
                    "p",
                    {"id": "hint", "class": "bad" if wrong else "muted"},
                    "This is not the token."
                    if wrong
                    else "The dashboard's token was set when the server was started.",
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


def _leave() -> Html:
    button = tag("button", {"type": "submit", "class": "plain"}, "Log out")
    return tag("form", {"method": "post", "action": "/logout"}, button)


def _title(view: Overview) -> str:
    if view.verdict.tone in {"bad", "warn"}:
        return f"! {view.verdict.title} · {TITLE}"
    return f"({view.totals.waiting}) {TITLE}" if view.totals.waiting else TITLE
