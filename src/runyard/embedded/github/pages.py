"""Builds one page of a long list, with the link to the next, as GitHub does."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from runyard.embedded.github import deliveries, render
from runyard.embedded.github.bodies import number, per_page
from runyard.embedded.github.deliveries import DeliveryLog
from runyard.embedded.github.identity import Denied
from runyard.embedded.github.render import Json
from runyard.http.messages import Pairs, Request, Response, json_response

T = TypeVar("T")


def paged(
    request: Request,
    found: Iterable[T],
    total: int,
    shape: Callable[[T], Json],
    *,
    key: str = "",
) -> Response:
    """One page; under `key` with a count, or as a bare list."""
    size = per_page(request.param("per_page"))
    page = number(request.param("page")) or 1
    # A caller's page number may be enormous; pages past the end are empty.
    start = min((page - 1) * size, total)
    items = [shape(each) for each in islice(found, start, start + size)]
    headers: Pairs = ()
    if start + size < total:
        target = f"{render.HOST}{request.path}?per_page={size}&page={page + 1}"
        headers = (("link", f'<{target}>; rel="next"'),)
    if not key:
        return json_response(200, items, headers)
    return json_response(200, {"total_count": total, key: items}, headers)


def delivery_page(request: Request, log: DeliveryLog) -> Response:
    """Attempts to deliver a webhook, newest first, paged by a cursor."""
    size = per_page(request.param("per_page"))
    cursor = request.param("cursor")
    before = number(cursor.removeprefix("v1_")) if cursor else None
    if before == 0:
        raise Denied(400, "Invalid cursor")
    found, following = log.page(before=before, size=size)
    headers: Pairs = ()
    if following is not None:
        target = f"{render.HOST}{request.path}?per_page={size}&cursor=v1_{following}"
        headers = (("link", f'<{target}>; rel="next"'),)
    return json_response(200, [deliveries.summary(each) for each in found], headers)
