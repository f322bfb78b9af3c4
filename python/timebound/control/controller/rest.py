"""HTTP: state as JSON and as server-sent events, the granted scenario, metrics, health, and the page.

Without a file of tokens everybody who reaches the listener may read, and nobody may change anything; the configuration allows that on loopback alone.
"""

# No postponed annotations here: FastAPI reads them, and they name what is local.
import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asked

from timebound import __version__
from timebound.control.controller.page import page
from timebound.control.controller.service import Service
from timebound.control.controller.tokens import Scope, Token, find

NOBODY = Token("read", "", "anybody")

_bearer = HTTPBearer(auto_error=False, description="a line of the file of tokens; see docs/controller.md")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def application(service: Service, tokens: tuple[Token, ...] | None, listen: str = "localhost") -> FastAPI:
    """The interface of a service; `tokens` of `None`: anybody may read who calls it by an address, `localhost` or `listen`, and nobody may change."""
    app = FastAPI(
        title="Timebound controller",
        version=__version__,
        description="What is reserved in the network, for whom, and what was refused. Times in ns, rates in bit/s.",
        # Its own documentation page would load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    if tokens is None:
        app.add_middleware(_ByItsName, names=("localhost", listen))
    may_read, may_change = _scoped(tokens, "read"), _scoped(tokens, "admin")
    _add_open(app, service)
    _add_reading(app, service, may_read)
    _add_changing(app, service, may_change)
    return app


class _ByItsName:
    """Turns away who calls the service by a name that is not its own.

    A page of any site can have its own name resolved to 127.0.0.1 (DNS rebinding), and its scripts would read what they find there as their own:
    they send that name. Nobody but its owner has an address, and `localhost` is not resolved.
    """

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Asked, receive: Receive, send: Send) -> None:
        said = Headers(scope=scope).get("host") if scope["type"] == "http" else None
        if said is None or self._is_own(said):
            await self._app(scope, receive, send)
            return
        why = "call it by its address or as localhost; by another name with tokens alone (http.tokens)\n"
        await PlainTextResponse(why, status_code=421)(scope, receive, send)

    def _is_own(self, said: str) -> bool:
        host = re.sub(r":\d*$", "", said)
        if host.lower() in self._names:
            return True
        try:
            ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True


def _scoped(tokens: tuple[Token, ...] | None, scope: Scope) -> Callable[..., Token]:
    """Who presents a token of this scope; 401 and 403 otherwise (RFC 6750, section 3.1)."""

    def check(credentials: Credentials) -> Token:
        if tokens is None:
            if scope == "read":
                return NOBODY
            raise HTTPException(403, "changes need a token: configure http.tokens")
        token = None if credentials is None else find(tokens, credentials.credentials)
        if token is None:
            raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": 'Bearer realm="timebound"'})
        if scope == "admin" and token.scope != "admin":
            raise HTTPException(
                403, "this token may only read", {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}
            )
        return token

    return check


def _add_open(app: FastAPI, service: Service) -> None:
    """What tells nobody anything of the site."""

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", summary="Does it do its work?")
    def healthz() -> Response:
        well, parts = service.health()
        return JSONResponse({"healthy": well, **parts}, status_code=200 if well else 503)

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", summary="Can it decide? The store answers, the site's switches are here, their links are known")
    def readyz() -> Response:
        well, parts = service.readiness()
        return JSONResponse({"ready": well, **parts}, status_code=200 if well else 503)

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    def index() -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        return HTMLResponse(page(nonce), headers=headers)


def _add_reading(app: FastAPI, service: Service, reader: Callable[..., Token]) -> None:
    allowed = [Depends(reader)]

    @app.get("/metrics", dependencies=allowed, summary="For Prometheus", response_class=PlainTextResponse)
    def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/api/v1/state", dependencies=allowed, summary="Everything at once")
    def state() -> dict[str, Any]:
        return service.view

    @app.get("/api/v1/topology", dependencies=allowed, summary="Switches, hosts, links with what is reserved on them")
    def topology() -> dict[str, Any]:
        found: dict[str, Any] = service.view["topology"]
        return found

    @app.get("/api/v1/requests", dependencies=allowed, summary="Who asks for what, and what they were told")
    def requests() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = service.view["requests"]
        return found

    @app.get("/api/v1/channels", dependencies=allowed, summary="What is reserved")
    def channels() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = service.view["channels"]
        return found

    @app.get("/api/v1/groups", dependencies=allowed, summary="Multicast between edge networks")
    def groups() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = service.view["groups"]
        return found

    @app.get(
        "/scenario",
        dependencies=allowed,
        response_class=PlainTextResponse,
        summary="What is granted, as a scenario: `timebound predict` gives the same bounds",
    )
    def scenario() -> Response:
        headers = {"Content-Disposition": 'attachment; filename="granted.yaml"'}
        return PlainTextResponse(service.scenario, media_type="application/yaml", headers=headers)

    @app.get(
        "/api/v1/events", dependencies=allowed, summary="The state, and again with every change (server-sent events)"
    )
    async def events(request: Request) -> StreamingResponse:
        return StreamingResponse(
            _events(service, request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )


async def _events(service: Service, request: Request) -> AsyncIterator[str]:
    """The document with every change of it (HTML Living Standard, section 9.2: event streams)."""
    known = -1
    while not await request.is_disconnected():
        latest = await asyncio.to_thread(service.wait, known, 1.0)
        if service.ended:
            return
        if latest == known:
            yield ": still here\n\n"
            continue
        known = latest
        yield f"event: state\nid: {known}\ndata: {json.dumps(service.view)}\n\n"


def _add_changing(app: FastAPI, service: Service, admin: Callable[..., Token]) -> None:
    @app.post(
        "/api/v1/requests/{request}/revoke",
        status_code=202,
        summary="Take a grant back; it stays refused until the client asks anew",
    )
    def revoke(request: str, token: Annotated[Token, Depends(admin)]) -> dict[str, str]:
        _known(service, request)
        service.revoke(request, token.name)
        return {"request": request, "by": token.name}

    @app.post("/api/v1/requests/{request}/retry", status_code=202, summary="Decide a refused request once more, now")
    def retry(request: str, token: Annotated[Token, Depends(admin)]) -> dict[str, str]:
        _known(service, request)
        service.retry(request)
        return {"request": request, "by": token.name}


def _known(service: Service, request: str) -> None:
    if not any(entry["id"] == request for entry in service.view["requests"]):
        raise HTTPException(404, "there is no such request")
