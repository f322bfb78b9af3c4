"""The manager's configuration file: what it says, and every mistake at its place."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.certificates import certificate
from timebound._core import Manager
from timebound.control.configuration import ConfigurationError
from timebound.control.controller.configuration import read as read_controller
from timebound.control.manager.configuration import Configuration, json_schema, load
from timebound.control.manager.reference import page
from timebound.control.srt.rows import Side
from timebound.control.srt.store import Tls

LEAST = "name: cell-a\nlisten: 127.0.0.1:1883\nbroker: 127.0.0.1:1884\nstore: file:/tmp/srt.db\n"


def read(tmp_path: Path, text: str) -> Configuration:
    file = tmp_path / "manager.yaml"
    file.write_text(text)
    return load(file)[0]


def problems(tmp_path: Path, text: str) -> list[tuple[int, int, str, str]]:
    with pytest.raises(ConfigurationError) as error:
        read(tmp_path, text)
    return [(each.line, each.column, each.message, each.hint) for each in error.value.problems]


def test_certificates_and_keys_are_read_before_anything_starts(tmp_path: Path) -> None:
    """`--check-config` had been content with files of any contents, and the service ended with its first start."""
    for name in ("site", "other"):
        certificate(tmp_path, name)
    certificate(tmp_path, "secret", password="geheim")
    (tmp_path / "note.txt").write_text("not of that kind\n")
    listen = "name: m\nlisten:\n  - {{address: 127.0.0.1, port: 1883, kind: tls, certificate: {}, key: {}}}\n"
    rest = "broker: 127.0.0.1:1884\nstore: file:/tmp/srt.db\n"

    def of(chain: str, key: str) -> list[tuple[int, str, str]]:
        text = listen.format(chain, key)
        lines = text.splitlines()
        found = problems(tmp_path, text + rest)
        return [(line, lines[line - 1][column - 1 :].partition(",")[0].rstrip("}"), f"{message} - {hint}") for line, column, message, hint in found]  # fmt: skip

    at = f"'{tmp_path}/"
    assert of("note.txt", "site.key") == [
        (3, "note.txt", f"{at}note.txt' holds no certificate - name a PEM file with certificates")
    ]
    assert of("site.pem", "note.txt") == [
        (3, "note.txt", f"{at}note.txt' holds no private key - name a PEM file with a private key")
    ]
    assert of("site.pem", "site.pem") == [
        (3, "site.pem", f"{at}site.pem' holds no private key - name a PEM file with a private key")
    ]
    assert of("site.pem", "other.key") == [
        (3, "other.key", f"{at}other.key' is the key of another certificate - name the key of site.pem")
    ]
    assert of("secret.pem", "secret.key") == [
        (3, "secret.key", f"{at}secret.key' is encrypted - store it without a password, for the service's user alone")
    ]
    assert [message for _, _, message in of("away.pem", "site.key")] == [
        f"{at}away.pem' cannot be read: it does not exist - name a readable file"
    ]
    assert read(tmp_path, listen.format("site.pem", "site.key") + rest).core["listeners"][0]["key"]
    os.mkfifo(tmp_path / "pipe")
    assert [message for _, _, message, _ in problems(tmp_path, listen.format("pipe", "site.key") + rest)] == [
        f"{at}pipe' cannot be read: it is no regular file, but a pipe, a socket or a device"
    ]
    broker = "broker: {address: b, port: 8883, tls: {authority: note.txt}}"
    ((line, column, message, _),) = problems(tmp_path, LEAST.replace("broker: 127.0.0.1:1884", broker))
    assert (line, column, message) == (3, broker.index("note") + 1, f"{at}note.txt' holds no certificate")
    peer = f"{LEAST}network: hall\npeer: {{address: 10.0.0.1, port: 1884, tls: {{certificate: site.pem, key: other.key, authority: note.txt}}}}"
    last = peer.splitlines()[-1]
    assert [(column, message) for _, column, message, _ in problems(tmp_path, peer)] == [
        (last.index("other.key") + 1, f"{at}other.key' is the key of another certificate"),
        (last.index("note.txt") + 1, f"{at}note.txt' holds no certificate"),
    ]
    whole = peer.replace("other.key", "site.key").replace("note.txt", "site.pem")
    said = read(tmp_path, whole).core["peer"]["tls"]
    assert said == {
        "certificate": f"{tmp_path}/site.pem",
        "key": f"{tmp_path}/site.key",
        "authority": f"{tmp_path}/site.pem",
    }
    assert not load(tmp_path / "manager.yaml")[1], "nothing is in clear"
    store = "store: {url: 'ssl:10.0.0.1:6640', key: other.key, certificate: site.pem, authority: site.pem}"
    ((line, column, message, _),) = problems(tmp_path, LEAST.replace("store: file:/tmp/srt.db", store))
    assert (line, column, message) == (4, store.index("other") + 1, f"{at}other.key' is the key of another certificate")


def test_the_folder_of_the_table_has_to_be_there(tmp_path: Path) -> None:
    for store, column in ((f"file:{tmp_path}/away/t.db", 8), (f"{{url: 'file:{tmp_path}/away/t.db'}}", 14)):
        found = problems(tmp_path, LEAST.replace("file:/tmp/srt.db", store))
        hint = "make it, or name another file"
        assert found == [(4, column, f"the folder '{tmp_path}/away' does not exist", hint)]
    found = problems(tmp_path, LEAST.replace("/tmp/srt.db", str(tmp_path)))
    assert found == [(4, 8, f"'{tmp_path}' is a folder", "name a file in it")]


def test_the_table_s_file_is_beside_the_configuration_as_the_controller_has_it(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    text = LEAST.replace("file:/tmp/srt.db", "file:tables/srt.db")
    assert read(tmp_path, text).store_url == f"file:{tmp_path}/tables/srt.db"
    assert read(tmp_path, LEAST).store_url == "file:/tmp/srt.db"
    # The path of a socket may have 107 bytes: it stays as short as it was written.
    assert read(tmp_path, LEAST.replace("file:/tmp/srt.db", "unix:srt.sock")).store_url == "unix:srt.sock"


def test_the_least_file(tmp_path: Path) -> None:
    said = read(tmp_path, LEAST)
    assert said.core["listeners"] == [
        {"address": "127.0.0.1", "port": 1883, "kind": "tcp", "certificate": None, "key": None, "client_authority": None, "certificate_as_user": False}
    ]  # fmt: skip
    assert (said.core["broker"], said.core["hold_ms"]) == ({"address": "127.0.0.1", "port": 1884, "tls": None}, 500)
    assert said.http == ("127.0.0.1", 9464), "nothing but MQTT is open to others unless it is said"
    assert said.policy.default.allow and not said.policy.rules
    assert said.announce is not None and said.announce.topic == "$timebound/manager"


def test_the_whole_file(tmp_path: Path) -> None:
    for name in ("site", "ca", "m"):
        certificate(tmp_path, name)
    (tmp_path / "password").write_text("geheim\nrest")
    said = read(
        tmp_path,
        """
name: cell-a
listen:
  - 127.0.0.1:1883
  - {address: 0.0.0.0, port: 8883, kind: tls, certificate: site.pem, key: site.key, client-authority: ca.pem, certificate-as-user: true}
broker: {address: broker, port: 8883, tls: {authority: ca.pem, server-name: b.example}}
store: {url: "ssl:10.0.0.1:6640", key: m.key, certificate: m.pem, authority: ca.pem}
hold: 0.2 s
limits: {connections: 10, header: 64 KiB, packet: 1 MiB, requests: 5, handshake: 1 s}
policy:
  default: deny
  rules:
    - {name: presses, user: press-*, topic: [plant/+/alarm, plant/state], address: 10.0.0.0/8, limits: {priority: 6, bandwidth: 2 Mbit/s, flows: 3, per: user}}
    - {name: no-bulk, client: [bulk], side: publish, allow: false}
http: 127.0.0.1:0
log: {format: console, level: debug}
audit: audit.jsonl
announce: {topic: site/x, user: timebound, password-file: password, channels: false}
""",
    )
    assert said.store_tls == Tls(
        key=str(tmp_path / "m.key"), certificate=str(tmp_path / "m.pem"), ca=str(tmp_path / "ca.pem")
    )
    assert said.core["listeners"][1]["certificate_as_user"] is True
    assert said.core["listeners"][1]["certificate"] == str(tmp_path / "site.pem")
    assert said.core["broker"]["tls"] == {"authority": str(tmp_path / "ca.pem"), "server_name": "b.example"}
    assert said.core["limits"]["header_bytes"] == 65536 and said.core["limits"]["handshake_ms"] == 1000
    first, second = said.policy.rules
    assert first.topics == ("plant/+/alarm", "plant/state") and first.limits.bandwidth_bps == 2_000_000
    assert (second.side, second.allow, second.clients) == (Side.PUBLISH, False, ("bulk",))
    assert not said.policy.default.allow
    assert said.announce is not None and said.announce.password == "geheim"
    assert "geheim" not in repr(said), "secrets are in no log"
    assert said.audit == tmp_path / "audit.jsonl"


def test_every_mistake_at_once_with_place_and_hint(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """name: cell a
listen: [localhost:1883, {address: 127.0.0.1, port: 8883, kind: tls}]
broker: {adress: 127.0.0.1, port: 70000}
hold: 500
polcy: {}
policy: {rules: [{name: a, topic: plant/#/x, address: 10.0.0.0/99}, {name: a}]}
""",
    )
    messages = {message: (line, hint) for line, _, message, hint in found}
    assert messages["unknown key 'adress'"] == (3, "did you mean 'address'?")
    assert messages["unknown key 'polcy'"] == (5, "did you mean 'policy'?")
    assert messages["'500' has no unit"][0] == 4
    assert any("no 'store'" in message for message in messages)
    assert all("scenario" not in message + hint for message, (_, hint) in messages.items())
    # What is well formed and yet impossible is told once the rest is right.
    found = problems(
        tmp_path,
        LEAST.replace(
            "127.0.0.1:1883",
            "[localhost:1883, {address: 127.0.0.1, port: 8883, kind: tls}, {address: '::', port: 1, key: x}]",
        )
        + "hold: 6 s\naudit: none/such.jsonl\nannounce: {topic: a/#, password-file: nowhere}\n"
        "policy: {rules: [{name: a, topic: plant/#/x, address: 10.0.0.0/99}, {name: a}]}\n",
    )
    assert [(line, message) for line, _, message, _ in found] == [
        (2, "'localhost' is no IP address"),
        (2, "tls needs a certificate"),
        (2, "tls needs a key"),
        (2, "tcp has no certificates"),
        (5, "nothing may wait for longer than 5 s"),
        (6, f"the folder {str(tmp_path / 'none')!r} does not exist"),
        (7, "a password without a user name"),
        (7, "'a/#' is no topic to publish to"),
        (7, f"{str(tmp_path / 'nowhere')!r} cannot be read: it does not exist"),
        (8, "'plant/#/x' is no topic filter"),
        (8, "'10.0.0.0/99' is no address or network"),
        (8, "there is a rule 'a' already"),
    ]


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("nothing", "is no store"),
        ("ssl:10.0.0.1:6640", "needs a key"),
        ("{url: 'unix:/x', key: a}", "has no certificates"),
        ("[]", "expected a mapping"),
    ],
)
def test_stores_that_are_none(tmp_path: Path, store: str, message: str) -> None:
    assert message in problems(tmp_path, LEAST.replace("file:/tmp/srt.db", store))[0][2]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["127.0.0.1:1", "1 s", "a/#", "x*"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "address", "port", "kind", "rules", "limits", "topic", "url", "tls", "per"]),
            inner,
            max_size=4,
        )
    ),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "name",
                "listen",
                "broker",
                "store",
                "hold",
                "limits",
                "policy",
                "http",
                "log",
                "audit",
                "announce",
                "other",
            ]
        ),
        VALUES,
        max_size=6,
    ),
    st.binary(max_size=30),
)
def test_any_file_is_a_configuration_or_its_problems(tmp_path: Path, over: dict[str, object], junk: bytes) -> None:
    file = tmp_path / "manager.yaml"
    for data in (yaml.safe_dump({**yaml.safe_load(LEAST), **over}).encode("utf-8", "surrogatepass"), junk):
        file.write_bytes(data)
        try:
            load(file)
        except ConfigurationError as error:
            assert error.problems and all(problem.message for problem in error.problems)
            assert error.render()


@pytest.mark.parametrize("text", ["", "- a\n", "name: [\n", "just text", "name: x\nname: y\n"])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    found = problems(tmp_path, text)
    assert all("scenario" not in hint for *_, hint in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST.replace("1884", "1883"), "127.0.0.1:1883 is the manager itself"),
        (LEAST.replace("broker: 127.0.0.1:1884", "broker: localhost:1883"), "is the manager itself"),
        (LEAST.replace("listen: 127.0.0.1", "listen: 0.0.0.0").replace("1884", "1883"), "is the manager itself"),
        (
            LEAST.replace("listen: 127.0.0.1:1883", "listen: [127.0.0.1:1883, 127.0.0.1:1883]"),
            "1883 is for MQTT already",
        ),
        (LEAST.replace("listen: 127.0.0.1:1883", "listen: [127.0.0.1:1883, 0.0.0.0:1883]"), "1883 is for MQTT already"),
        (LEAST + "http: 127.0.0.1:1883\n", "is for MQTT already"),
    ],
)
def test_every_door_is_somebodys_own(tmp_path: Path, text: str, message: str) -> None:
    assert any(message in said for _, _, said, _ in problems(tmp_path, text))


def test_the_same_port_of_another_host_and_any_free_port_are_no_conflict(tmp_path: Path) -> None:
    read(tmp_path, LEAST.replace("127.0.0.1:1884", "192.0.2.7:1883"))
    read(tmp_path, LEAST.replace("listen: 127.0.0.1:1883", "listen: [127.0.0.1:0, 127.0.0.1:0]"))


def test_what_is_doubtful_is_said(tmp_path: Path) -> None:
    file = tmp_path / "manager.yaml"
    file.write_text(LEAST.replace("127.0.0.1:1883", "0.0.0.0:1883").replace("file:/tmp/srt.db", "tcp:10.0.0.1:6640"))
    warnings = [warning.message for warning in load(file)[1]]
    assert warnings == [
        "passwords and messages cross the network in clear at 0.0.0.0",
        "anybody on the way can read and change the table",
    ]


def test_the_schema_for_editors_accepts_what_is_accepted() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    check.validate(yaml.safe_load(LEAST))
    rules = {"policy": {"rules": [{"name": "a", "user": "x", "limits": {"bandwidth": "1 Mbit/s"}}]}}
    check.validate(
        {**yaml.safe_load(LEAST), **rules, "listen": ["127.0.0.1:1", {"address": "::1", "port": 2, "kind": "ws"}]}
    )
    assert not check.is_valid({**yaml.safe_load(LEAST), "hold": 500})
    assert not check.is_valid({**yaml.safe_load(LEAST), "extra": 1})


def test_the_page_has_the_keys_that_are_checked() -> None:
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "manager.md").read_text()
    assert page(text) == text, "make docs"
    assert json.loads((docs / "manager.schema.json").read_text()) == json_schema(), "make docs"


def test_the_example_is_well_formed(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "manager.example.yaml").read_text()
    for name in ("site", "clients", "ca", "table"):
        certificate(tmp_path, name)
    (tmp_path / "password").write_text("x\n")
    said = read(tmp_path, re.sub("/etc/timebound|/var/log/timebound|/var/lib/timebound/cell-a", str(tmp_path), text))
    assert said.policy.rules and said.store_tls and said.audit and said.core["peer"]["state"]


PEER = "network: hall-1\npeer: 127.0.0.1:1883\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (LEAST + PEER, 6, "127.0.0.1:1883 is for MQTT already"),
        (LEAST.replace("listen: 127.0.0.1", "listen: 0.0.0.0") + PEER, 6, "127.0.0.1:1883 is for MQTT already"),
        (
            LEAST + PEER.replace("1883", "9464"),
            1,
            "127.0.0.1:9464 is for other managers already",
        ),
        (LEAST + PEER.replace("1883", "1884"), 3, "127.0.0.1:1884 is the manager itself"),
        (LEAST + "http: 127.0.0.1:1884\n", 3, "127.0.0.1:1884 is the manager itself"),
        (
            LEAST.replace("listen: 127.0.0.1:1883", "listen: [0.0.0.0:1883, 127.0.0.1:1883]"),
            2,
            "127.0.0.1:1883 is for MQTT already",
        ),
        (LEAST.replace("listen: 127.0.0.1:1883", "listen: ['[::1]:1', '[::1]:1']"), 2, "[::1]:1 is for MQTT already"),
        (LEAST.replace("file:/tmp/srt.db", "tcp:127.0.0.1:0"), 4, "'tcp:127.0.0.1:0' has no address and port"),
        (LEAST.replace("file:/tmp/srt.db", "tcp:127.0.0.1"), 4, "'tcp:127.0.0.1' has no address and port"),
        (LEAST.replace("file:/tmp/srt.db", "tcp:127.0.0.1:65536"), 4, "'tcp:127.0.0.1:65536' has no address and port"),
        (LEAST + "audit: .\n", 5, "' is a folder"),
        (LEAST + "network: a\npeer: {address: 127.0.0.1, port: 1, state: .}\n", 6, "' is a folder"),
        (LEAST + "limits: {header: 1023 B}\n", 5, "'1023 B' is too little"),
        (LEAST + "limits: {packet: 1 B}\n", 5, "'1 B' is too little"),
        (LEAST + "limits: {websocket: 0 B}\n", 5, "'0 B' is too little"),
        (LEAST + "limits: {handshake: 0 s}\n", 5, "'0 s' is too little"),
        (LEAST + "limits: {connect: 0.9 ms}\n", 5, "'0.9 ms' is too little"),
        (LEAST + "network: a\npeer: {address: 127.0.0.1, port: 1, silence: 0 s}\n", 6, "it is from 100 ms to 10 min"),
        (LEAST + "network: a\npeer: {address: 127.0.0.1, port: 1, join: 2 min}\n", 6, "it is from 1 ms to 1 min"),
        (LEAST.replace("file:/tmp/srt.db", "ssl:127.0.0.1:6640"), 4, "ssl: needs an authority"),
        (LEAST.replace("cell-a", "'a/+/#'"), 1, "'a/+/#' is no name of a manager"),
    ],
)
def test_what_is_well_formed_and_cannot_work_is_told(tmp_path: Path, text: str, line: int, message: str) -> None:
    found = problems(tmp_path, text)
    assert [at for at, _, said, hint in found if message in said and hint] == [line], found


def test_limits_at_their_least_are_taken_by_the_intermediary(tmp_path: Path) -> None:
    least = "limits: {header: 1 KiB, packet: 1 KiB, websocket: 1 KiB, aliases: 0 B, handshake: 1 ms, connect: 1 ms}\n"
    said = read(tmp_path, LEAST.replace("127.0.0.1:1883", "127.0.0.1:0") + least)
    core = Manager(json.dumps(said.core))
    core.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"\0binary",
        b"x: \xff",
        b"# nothing yet\n",
        b"a: 1\n---\nb: 2\n",
        b"a: [" * 400,
        b"x" * 2_000_001,
        b"[" + b"1," * 150_001 + b"]",
        b"peer: {}\nflows: 1\n",
        b"name: ",
    ],
)
@pytest.mark.parametrize(("read_it", "page"), [(load, "docs/manager.md"), (read_controller, "docs/controller.md")])
def test_a_file_of_any_contents_is_spoken_of_as_what_it_is(
    tmp_path: Path, data: bytes, read_it: Callable[[Path], object], page: str
) -> None:
    """A binary file had been told that a scenario is a text, and an empty one to begin with `flows`."""
    file = tmp_path / "service.yaml"
    file.write_bytes(data)
    with pytest.raises(ConfigurationError) as error:
        read_it(file)
    for problem in error.value.problems:
        assert "scenario" not in f"{problem.message} {problem.hint}"
        assert "flows" not in problem.hint
    if data.startswith(b"#"):
        assert page in error.value.problems[0].hint
