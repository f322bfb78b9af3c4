"""The controller's file: what it means, and every mistake with its place and a hint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.certificates import certificate

from timebound.cli.app import execute
from timebound.control.configuration import ConfigurationError
from timebound.control.controller.configuration import json_schema, read
from timebound.control.openflow.settings import QueueMode

WHOLE = """
name: hall-3
store: {url: "file:srt.db"}
network: plant.yaml
defaults: {rate: 100 Mbit/s, switch-delay: 10..20 us}
openflow:
  port: 6654
  switches:
    - {name: s1, datapath: "0000000000000001", queues: ovsdb, ovsdb: "unix:/run/openvswitch/db.sock"}
    - {name: s2, datapath: "00:00:00:00:00:00:00:02", ports: {s2-eth1: {rate: 10 Mbit/s}}}
brokers:
  m1: {service: {latency: 300 us, per-message: 20 us}}
  default: {service: {latency: 2 ms}}
planning: {jitter: 2 ms, reservable: 75 %, class-deadlines: [1 ms, 4 ms]}
http: {port: 9000, tokens: tokens}
audit: audit.jsonl
"""
PLANT = """
name: plant
network: {nodes: {h1: {kind: host, address: 10.0.0.7}, s1: switch, s2: switch}, links: [[h1, s1], [s1, s2]]}
flows: []
stack: {udp: {}}
run: {duration: 1 s}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plant.yaml").write_text(PLANT, encoding="utf-8")
    (tmp_path / "tokens").write_text("", encoding="utf-8")
    (tmp_path / "tokens").chmod(0o600)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    file = folder / "controller.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_whole_file(folder: Path) -> None:
    found = read(written(folder, WHOLE))
    assert found.store_url == f"file:{folder / 'srt.db'}"
    assert [switch.datapath for switch in found.switches.switches] == [1, 2]
    assert found.switches.switches[0].queues is QueueMode.OVSDB
    assert found.switches.switches[1].ports["s2-eth1"].rate_bps == 10_000_000
    assert [node.name for node in found.switches.nodes] == ["h1", "s1", "s2"]
    assert found.site.reservable == 0.75 and found.site.class_of(3_000_000) == 5 and found.site.class_of(10**9) == 1
    service = found.site.server("m1").service
    assert service is not None and service.latency_ns == 300_000
    assert found.site.server("other").service.latency_ns == 2_000_000  # type: ignore[union-attr]
    assert found.http.listen == "127.0.0.1" and found.http.tokens == folder / "tokens"


def test_the_least_file_is_secure(folder: Path) -> None:
    found = read(written(folder, 'store: {url: "file:srt.db"}\n'))
    assert found.http.listen == found.switches.host == "127.0.0.1"
    assert found.switches.tls is None and not found.switches.insecure


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("store: {url: 'file:x'}\nopenflw: {}\n", 2, "unknown key"),
        ("name: x\n", 1, "store"),
        ("store: {url: 'http://x'}\n", 1, "is no store"),
        ("store: {url: 'ssl:10.0.0.1:6640'}\n", 1, "TLS needs"),
        ("store: {url: 'file:x'}\nopenflow:\n  listen: 0.0.0.0\n", 3, "plain OpenFlow"),
        ("store: {url: 'file:x'}\nhttp:\n  listen: 0.0.0.0\n", 3, "plain HTTP"),
        ("store: {url: 'file:x'}\nhttp: {tokens: nowhere}\n", 2, "cannot be read"),
        ("store: {url: 'file:x'}\nnetwork: nowhere.yaml\n", 2, "cannot be read"),
        ("store: {url: 'file:x'}\nopenflow: {switches: [{name: a, datapath: xyz}]}\n", 2, "no datapath id"),
        (
            "store: {url: 'file:x'}\nopenflow: {switches: [{name: a, datapath: '1', queues: ovsdb}]}\n",
            2,
            "without a database",
        ),
        ("store: {url: 'file:x'}\nplanning: {class-deadlines: [5 ms, 2 ms]}\n", 2, "do not rise"),
        ("store: {url: 'file:x'}\nplanning: {jitter: 5}\n", 2, "unit"),
        ("store: {url: 'file:x'}\nbrokers: {m: {}}\n", 2, "neither a profile nor"),
        ("store: {url: 'file:x'}\nhttp: {port: 6653}\n", 2, "127.0.0.1:6653 is for switches already"),
        (
            "store: {url: 'file:x'}\nhttp: {port: 6653, listen: localhost}\n",
            2,
            "localhost:6653 is for switches already",
        ),
        ("store: {url: 'file:x'}\naudit: away/a.jsonl\n", 2, "away' does not exist"),
        ("store: {url: 'file:x'}\naudit: .\n", 2, "' is a folder"),
        ("store: {url: 'tcp:127.0.0.1:0'}\n", 1, "has no address and port"),
        ("store: tcp:127.0.0.1\n", 1, "has no address and port"),
        ("store: {url: 'file:x'}\nplanning: {reservable: 0 %}\n", 2, "nothing could be reserved"),
        ("store: {url: 'file:x'}\nplanning: {buffer: 0 B}\n", 2, "'0 B' is too little"),
        ("store: {url: 'file:x'}\nplanning: {reservable: 0.75}\n", 2, "0.75 has no unit"),
        ("", 0, "empty"),
    ],
)
def test_mistakes_are_told_with_their_places(folder: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(written(folder, text))
    found = [problem for problem in raised.value.problems if said in problem.message]
    assert found, [problem.message for problem in raised.value.problems]
    assert found[0].line == line and found[0].hint


def test_a_file_of_tokens_that_others_may_read_is_refused(folder: Path) -> None:
    (folder / "tokens").chmod(0o644)
    with pytest.raises(ConfigurationError) as raised:
        read(written(folder, WHOLE))
    assert "others than its owner" in raised.value.problems[0].message


def test_the_schema_accepts_what_is_read_and_no_other_keys(folder: Path) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(WHOLE), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"store": {"url": "file:x"}, "openflw": {}}, schema)


def test_the_command_checks_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["controller", str(written(folder, WHOLE)), "--check-config"]) == 0
    assert "hall-3: well formed" in capsys.readouterr().out
    assert execute(["controller", str(written(folder, "store: {}\n")), "--check-config"]) == 2
    assert "controller.yaml:1:" in capsys.readouterr().err
    assert execute(["controller", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Timebound controller"
    assert execute(["controller"]) == 2


def test_a_new_token_is_shown_once_and_its_line_is_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["controller", "--new-token", "read"]) == 0
    shown = capsys.readouterr()
    token = shown.err.split("shown once: ")[1].strip()
    assert shown.out.startswith("read ") and token not in shown.out


def test_the_example_is_well_formed_and_the_schema_beside_it_is_ours() -> None:
    docs = Path(__file__).parents[2] / "docs"
    assert read(docs / "controller.example.yaml").name == "hall-3"
    assert json.loads((docs / "controller.schema.json").read_text(encoding="utf-8")) == json_schema()


def test_certificates_keys_and_the_folder_of_the_table_are_looked_at(folder: Path) -> None:
    """`--check-config` had been content with files of any contents."""
    for name in ("a", "b"):
        certificate(folder, name, subject="site")
    text = "store: {url: 'file:away/srt.db'}\nopenflow: {tls: {key: b.key, certificate: a.pem, ca: tokens}}\n"
    with pytest.raises(ConfigurationError) as error:
        read(written(folder, text))
    lines = text.splitlines()
    found = [(lines[each.line - 1][each.column - 1 :][:5], each.message) for each in error.value.problems]
    assert found == [
        ("'file", f"the folder '{folder}/away' does not exist"),
        ("b.key", f"'{folder}/b.key' is the key of another certificate"),
        ("token", f"'{folder}/tokens' holds no certificate"),
    ]
    good = text.replace("away/", "").replace("b.key", "a.key").replace("ca: tokens", "ca: b.pem")
    assert read(written(folder, good)).switches.tls is not None


def test_the_store_has_a_short_form_as_a_manager_s_has(folder: Path) -> None:
    assert read(written(folder, "store: file:srt.db\n")) == read(written(folder, "store: {url: 'file:srt.db'}\n"))
    jsonschema.validate({"store": "file:srt.db"}, json_schema())


def test_a_share_without_a_unit_is_shown_with_the_one_that_is_meant(folder: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(written(folder, "store: file:srt.db\nplanning: {reservable: 0.75}\n"))
    assert [problem.hint for problem in raised.value.problems] == ["write for example 75 %"]


def test_the_defaults_of_planning_are_those_of_its_page(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "controller.md").read_text(encoding="utf-8")
    table = page.split("| `planning` | default | |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", table, re.MULTILINE)
    assert [key for key, _ in rows] == list(json_schema()["$defs"]["Planning"]["properties"])
    stated = "".join(f"  {key}: {value}\n" for key, value in rows)
    assert read(written(folder, f"store: file:x\nplanning:\n{stated}")) == read(written(folder, "store: file:x\n"))


def test_a_network_s_file_that_is_not_there_is_told_once(folder: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(written(folder, "store: file:x\nnetwork: nowhere.yaml\n"))
    (problem,) = raised.value.problems
    assert "cannot be read" in problem.message
