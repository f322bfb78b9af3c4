"""REST and page of a controller over real sockets: who may do what, what is told, the page in headless Chromium."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from controller_site import SiteInOne, site, until
from page_in_browser import Browser
from planner_worlds import MS, line
from tests.tools import absent

from timebound.control.controller.rest import application
from timebound.control.controller.tokens import Token, TokenError, digest_of, find, new_token, read_tokens
from timebound.control.srt.rows import Outcome
from timebound.engine.runs import figures_only
from timebound.report.png import find_chromium
from timebound.scenario import load


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[SiteInOne]:
    """A site with one grant and one refusal, whose topic is hostile to pages."""
    with site(tmp_path, line()) as found:
        table = found.table
        requests = [
            table.publish(table.connect("h1"), "plant/alpha"),
            table.subscribe(table.connect("h2"), "plant/#"),
            table.publish(table.connect("h1"), "<img src=x onerror=alert(1)>", deadline_ns=MS),
        ]
        found.ask(*requests)
        found.verdict(requests[0], Outcome.GRANTED)
        found.verdict(requests[2], Outcome.REFUSED)
        until(lambda: sum(bool(entry["verdict"]) for entry in found.service.view["requests"]) == 3)
        yield found


def serving(plant: SiteInOne, tokens: tuple[Token, ...] | None) -> Iterator[str]:
    server = uvicorn.Server(
        uvicorn.Config(application(plant.service, tokens), port=0, log_config=None, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def url(plant: SiteInOne) -> Iterator[str]:
    yield from serving(plant, None)


READ, ADMIN = "read-token", "admin-token"


@pytest.fixture
def guarded(plant: SiteInOne) -> Iterator[str]:
    yield from serving(plant, (Token("read", digest_of(READ), "eve"), Token("admin", digest_of(ADMIN), "ann")))


def get(url: str, token: str | None = None, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(url, method=method)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_what_is_there_is_told(url: str) -> None:
    status, text = get(f"{url}/api/v1/state")
    state = json.loads(text)
    assert status == 200 and state["ready"] and len(state["channels"]) == 4
    outcomes = {entry["topic"]: entry["verdict"]["outcome"] for entry in state["requests"]}
    assert outcomes["plant/alpha"] == "granted" and "refused" in outcomes.values()
    links = {link["name"]: link["reserved"] for link in json.loads(get(f"{url}/api/v1/topology")[1])["links"]}
    assert 0 < links["s1->s2"] < 0.1 and links["s3->s2"] < links["s1->s2"]
    assert json.loads(get(f"{url}/healthz")[1])["healthy"] is True
    assert "timebound_controller_channels" in get(f"{url}/metrics")[1]
    paths = json.loads(get(f"{url}/api/v1/openapi.json")[1])["paths"]
    assert {"/scenario", "/api/v1/requests/{request}/revoke", "/healthz"} <= paths.keys()


def test_the_granted_scenario_has_the_bounds_that_were_told(url: str, plant: SiteInOne) -> None:
    status, text = get(f"{url}/scenario")
    assert status == 200
    flows = figures_only(load(text), {"predict"})["flows"]
    bound = max(flow["end_to_end_us"]["bound"] for flow in flows) * 1000
    assert plant.verdict("r1").bound_ns == pytest.approx(bound)


@pytest.mark.parametrize(
    "path", ["/api/v1/state", "/metrics", "/scenario", "/api/v1/events", "/api/v1/channels", "/api/v1/groups"]
)
def test_nothing_is_told_without_a_token(guarded: str, path: str) -> None:
    assert get(f"{guarded}{path}")[0] == 401
    assert get(f"{guarded}{path}", "wrong")[0] == 401
    if path != "/api/v1/events":
        assert get(f"{guarded}{path}", READ)[0] == 200


def test_health_and_the_bare_page_need_none(guarded: str) -> None:
    assert get(f"{guarded}/healthz")[0] == 200
    assert "plant/alpha" not in get(f"{guarded}/")[1]


def test_only_an_administrator_may_change(guarded: str, plant: SiteInOne) -> None:
    path = f"{guarded}/api/v1/requests/r1/revoke"
    assert [get(path, token, "POST")[0] for token in (None, READ)] == [401, 403]
    assert get(path, ADMIN, "POST")[0] == 202
    assert "ann" in plant.verdict("r1", Outcome.REFUSED).reason
    assert get(f"{guarded}/api/v1/requests/r1/retry", ADMIN, "POST")[0] == 202
    plant.verdict("r1", Outcome.GRANTED)
    assert get(f"{guarded}/api/v1/requests/nobody/revoke", ADMIN, "POST")[0] == 404


def test_without_tokens_nobody_may_change(url: str) -> None:
    assert get(f"{url}/api/v1/requests/r1/revoke", None, "POST")[0] == 403


def test_events_tell_every_change(url: str, plant: SiteInOne) -> None:
    with urllib.request.urlopen(f"{url}/api/v1/events", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")

        def state() -> dict[str, Any]:
            for line in stream:
                if line.startswith(b"data: "):
                    found: dict[str, Any] = json.loads(line[6:])
                    return found
            raise AssertionError("the stream ended")

        assert len(state()["requests"]) == 3
        plant.drop("r3")
        until(lambda: len(state()["requests"]) == 2)


def test_tokens_are_kept_as_hashes_and_files_of_them_are_checked(tmp_path: Path) -> None:
    token, line_ = new_token("admin", "ann's laptop")
    assert token not in line_
    file = tmp_path / "tokens"
    file.write_text(f"# site\n\n{line_}\n", encoding="utf-8")
    tokens = read_tokens(file)
    assert find(tokens, token) == tokens[0] and tokens[0].name == "ann's laptop"
    assert find(tokens, token[:-1]) is None
    file.write_text(f"{line_}\nroot {'0' * 64} x\n", encoding="utf-8")
    with pytest.raises(TokenError, match=r"tokens:2"):
        read_tokens(file)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip(absent(["chromium"]))
    with Browser(program, tmp_path, 1200) as found:
        yield found


def test_the_page_shows_network_requests_and_channels(url: str, browser: Browser) -> None:
    shown = browser.show(url, "document.body.dataset.shown === 'yes'")
    assert len(re.findall(r"<line [^>]*class=\"link", shown)) == 5
    assert re.search(r"<text[^>]*>s2<", shown) and re.search(r"<text[^>]*>h1<", shown)
    assert "plant/alpha" in shown and "c1:up" in shown and "Would do: a deadline of" in shown
    assert re.search(r'<td class="proven">proven</td>', shown) and re.search(r'<td class="refused">refused</td>', shown)
    # A topic is text, whatever it looks like.
    assert "<img" not in shown and "&lt;img src=x" in shown
    assert browser.said == []


def test_the_page_asks_for_a_token_where_one_is_needed(guarded: str, browser: Browser) -> None:
    shown = browser.show(guarded, "document.querySelector('#login') && !document.querySelector('#login').hidden")
    assert "a token is needed" in shown and '<form id="login">' in shown and "plant/alpha" not in shown


def test_the_page_loads_nothing_from_elsewhere(url: str) -> None:
    with urllib.request.urlopen(f"{url}/", timeout=10) as answer:
        text, policy = answer.read().decode(), answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", text)
    assert set(re.findall(r"https?://[^\"'\s;]+", text)) <= {"http://www.w3.org/2000/svg"}


def answer(url: str, path: str, host: str | None, method: str = "GET") -> tuple[int, bytes]:
    """Status, and all that came after the head."""
    address = urllib.parse.urlsplit(url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0), timeout=10) as stream:
        said = f"Host: {host}\r\n" if host is not None else ""
        stream.sendall(f"{method} {path} HTTP/1.{int(host is not None)}\r\n{said}Connection: close\r\n\r\n".encode())
        found = b"".join(iter(lambda: stream.recv(65536), b""))
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/state", "/metrics", "/scenario"])
def test_by_another_name_nobody_reads_what_needs_no_token(url: str, path: str) -> None:
    """A page whose name was made to mean 127.0.0.1 would read the site with the browser of whoever opened it."""
    for host in (
        "attacker.example",
        "attacker.example:8321",
        "localhost.attacker.example",
        "127.0.0.1.nip.io",
        "[::1].x",
        "",
    ):
        status, body = answer(url, path, host)
        assert status in (400, 421) and b"plant" not in body, host
    for own in ("127.0.0.1", "127.0.0.1:8321", "localhost", "LocalHost:9", "[::1]:8321", None):
        assert answer(url, path, own)[0] == 200, own


def test_with_tokens_any_name_will_do(guarded: str) -> None:
    assert answer(guarded, "/healthz", "controller.plant.example")[0] == 200
    assert answer(guarded, "/api/v1/state", "controller.plant.example")[0] == 401


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz"])
def test_head_of_what_is_open_is_get_without_a_body(guarded: str, path: str) -> None:
    status, body = answer(guarded, path, "localhost")
    assert body
    assert answer(guarded, path, "localhost", "HEAD") == (status, b"")
