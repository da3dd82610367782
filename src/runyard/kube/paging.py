"""Reads a list page by page and decodes each object as its page arrives.

A list of ten thousand Pods is 35 MB of text. What a caller keeps of it is often less, so every object is given to
`read` at once and the text of a page is freed before the next one is requested.

Invariants:
- A list is complete or it raises; an incomplete list is never returned.
- It ends: a server that returns the same continue token again, or too many of them, has failed.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from runyard.http.messages import Pairs, Response
from runyard.kube.errors import ServerFailed

MOST_PAGES = 2_000  # a million objects in pages of the usual size

U = TypeVar("U")
Found = tuple[list[U], str]  # what was made of each object, and the version of the list


class _PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str | None = None
    next: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _PageMeta = _PageMeta()
    items: tuple[msgspec.Raw, ...] | None = None


_PAGE = msgspec.json.Decoder(_Page)


async def read_pages(
    get_page: Callable[[Pairs], Awaitable[Response]],
    read: Callable[[msgspec.Raw], U],
    *,
    limit: int,
    what: str,
) -> Found[U]:
    """Read a whole list; `limit` 0 requests it in one page.

    `get_page` is called with the parameters of a page. An error of `read` ends the list.
    """
    paging: Pairs = (("limit", str(limit)),) if limit else ()
    found: list[U] = []
    token = ""
    for _ in range(MOST_PAGES):
        meta = _read_page(
            await get_page((*paging, ("continue", token)) if token else paging), read, found, what
        )
        if not meta.next:
            return found, meta.resource_version or ""
        if meta.next == token:
            raise ServerFailed(200, "EndlessList", f"{what}: the same page again")
        token = meta.next
    raise ServerFailed(200, "EndlessList", f"{what}: more than {MOST_PAGES} pages")


def _read_page(
    answer: Response, read: Callable[[msgspec.Raw], U], found: list[U], what: str
) -> _PageMeta:
    """Read one page; a separate function, so that the page is freed when it returns."""
    try:
        page = _PAGE.decode(answer.body)
    except msgspec.MsgspecError as error:
        raise ServerFailed(200, "UnreadableAnswer", f"{what}: {error}") from error
    found.extend(map(read, page.items or ()))
    return page.metadata
