"""Who may use the server: this machine's own browser, or one with the token.

Another web page that is open in the same browser can send requests to 127.0.0.1, and can have its own host name resolve
to 127.0.0.1. Requests that name another host or come from another origin are refused.
"""

import hmac
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unweave.explore.config import THIS_MACHINE

SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
COOKIE = "unweave-token"


class Guard:
    """Middleware that refuses requests of other hosts, other origins and, where there is one, without the token."""

    def __init__(self, app: ASGIApp, *, token: str | None, host: str) -> None:
        self.app, self.token = app, token
        self.hosts = {*THIS_MACHINE, host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SAFE)
            await send(message)

        await (refusal or self.app)(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        """The response to a request that is not let through."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.token is None and _name(host) not in self.hosts:
            return JSONResponse({"error": f"this server answers to {', '.join(sorted(self.hosts))} alone"}, 421)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return JSONResponse({"error": "requests of other web pages are not answered"}, 403)
        if self.token is None:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and _equal(given, self.token):
            response = RedirectResponse("./", 303)
            response.set_cookie(_cookie(scope), self.token, httponly=True, samesite="strict")
            return response
        if not _equal(cookie_parser(headers.get("cookie", "")).get(_cookie(scope), ""), self.token):
            error = "open the address that `unweave explore` printed, with its token"
            return JSONResponse({"error": error}, 401)
        return None


def _name(host: str) -> str:
    """A host without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _cookie(scope: Scope) -> str:
    """The cookie's name has the port: browsers send cookies to every port of a host."""
    return f"{COOKIE}-{(scope.get('server') or ('', 0))[1]}"
