"""The page on which a user confirms the creation of an App from a manifest; here it is always confirmed.

The posted form is validated as far as GitHub is known to validate it; then the browser is redirected with a code.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from runyard.embedded.github.identity import Denied
from runyard.http.messages import Request, Response

PAGE = "/settings/apps/new"  # for a user; for an organisation below /organizations/NAME
_NEEDED = ("name", "url", "redirect_url")


def register(request: Request, submit: Callable[[Mapping[str, Any]], str]) -> Response:
    """Takes the form; answers 302 with the code, as after the user has agreed."""
    if request.method != "POST":
        raise Denied(405, "Post a manifest")
    try:
        fields = parse_qs(request.body.decode(), max_num_fields=8)
        manifest = msgspec.json.decode(fields.get("manifest", [""])[0], type=dict[str, Any])
    except (ValueError, msgspec.MsgspecError):
        raise Denied(422, "There is no manifest in the form") from None
    missing = [name for name in _NEEDED if not isinstance(manifest.get(name), str)]
    hook = manifest.get("hook_attributes")
    if not isinstance(hook, dict) or not isinstance(hook.get("url"), str):
        missing.append("hook_attributes")
    if missing:
        raise Denied(422, f"The manifest lacks {', '.join(missing)}")
    back = manifest["redirect_url"]
    if urlsplit(back).scheme not in ("http", "https"):
        raise Denied(422, "The manifest's redirect_url is not a URL")
    answer = {"code": submit(manifest), "state": request.param("state")}
    return Response(status=302, headers=(("location", f"{back}?{urlencode(answer)}"),))
