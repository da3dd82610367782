"""The routes and the body of login links, which open the dashboard in a browser."""

import msgspec

LOGIN = "/login"
LOGIN_LINKS = "/api/v1/login-links"


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that logs one browser in, once."""

    path: str
    seconds: float  # until it expires

    def __repr__(self) -> str:
        return "LoginLink(…)"
