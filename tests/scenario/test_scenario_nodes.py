"""Templates, clones, placeholders, files and limits of nodes: what they become, and what is wrong with them and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_helpers import problems

from timebound.engine.nodes import check_nodes, host_plan, read_nominal_hz
from timebound.scenario import ScenarioError, load
from timebound.stacks import PlanError, build_plan

TEMPLATES = """name: nodes
network:
  defaults: {host: {env: {ALL: "yes"}}}
  templates:
    base: {kind: host, mtu: 127, env: {SITE: north, ID: "${index}"}, files: {/etc/a: "a ${node}", /etc/b: b}}
    meter: {template: base, cpu: 20 MHz, memory: 32 MiB, files: {/etc/b: {content: "own ${index}", mode: 0600}}}
  nodes:
    h[1-3]: {template: meter, hostname: "meter-${index}", env: {SITE: south}, run: [[echo, "${node}", 5]]}
    h4: {clone-of: h2, hostname: four, mtu: 1500}
    s1: switch
  links: [["h[1-4]", s1]]
stack: {udp: {}}
"""


def test_templates_and_clones_become_whole_nodes() -> None:
    loaded = load(TEMPLATES)
    second, clone = loaded.node("h2"), loaded.node("h4")
    assert (second.mtu, second.cpu_hz, second.memory_bytes, second.hostname) == (127, 20_000_000, 32 * 2**20, "meter-2")
    assert second.environment == {"ALL": "yes", "SITE": "south", "ID": "2"}
    assert [(file.path, file.content, file.mode) for file in second.files] == [
        ("/etc/a", "a h2", 0o644),
        ("/etc/b", "own 2", 0o600),
    ]
    assert second.programs[0].command == ("echo", "h2", "5")
    assert (clone.mtu, clone.hostname, clone.programs[0].command) == (1500, "four", ("echo", "h4", "5"))
    assert clone.cpu_hz == second.cpu_hz
    assert load(loaded.to_yaml()) == loaded


def test_programs_of_clones_have_names_of_their_own() -> None:
    names = [program["name"] for program in build_plan(load(TEMPLATES)).programs]
    assert names == ["h1-echo", "h2-echo", "h3-echo", "h4-echo"]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("template: meter,", "template: metre,", 8, "unknown template 'metre'"),
        ("base: {kind: host,", "base: {template: meter,", 5, "templates that need one another"),
        ("h4: {clone-of: h2", "h4: {clone-of: h9", 9, "unknown node 'h9'"),
        ("h4: {clone-of: h2", "h4: {clone-of: h4", 9, "clones of one another"),
        ("h4: {clone-of: h2,", "h4: {clone-of: h2, template: base,", 9, "a node is a clone or has a template"),
        ("s1: switch", "s1: {kind: switch, template: meter}", 5, "mtu belongs to hosts, and 's1' is a switch"),
        ("s1: switch", "s1: {kind: switch, hostname: x}", 10, "hostname belongs to hosts"),
        ("s1: switch", "s1: {delay: 1 ms}", 10, "node 's1' has no kind"),
        ("base: {kind: host,", "base: {kind: host, address: 10.0.0.9,", 5, "address belongs to a node"),
        ('"meter-${index}"', "meter", 8, "'meter' is the host name of 'h1' already"),
        ('"meter-${index}"', '"a b"', 8, "'a b' is no host name"),
        ("/etc/a:", "/etc/../a:", 5, "'/etc/../a' cannot be a file of a node"),
        ("/etc/a:", "etc/a:", 5, "'etc/a' cannot be a file of a node"),
        ("/etc/a:", "/proc/a:", 5, "'/proc/a' belongs to the kernel"),
        ('/etc/a: "a ${node}"', "/etc/a: {from: no-such.file}", 5, "'no-such.file' is no file that can be read"),
        ('/etc/a: "a ${node}"', "/etc/a: {mode: 0600}", 5, "a file has a content or comes from a file"),
        ("cpu: 20 MHz", "cpu: 20 MB", 6, "'MB' is no unit of a CPU share"),
        ("cpu: 20 MHz", "cpu: 0.01 %", 6, "'0.01 %' is too little"),
        ("cpu: 20 MHz", "cpu: {share: 5 %, frequency: 1 MHz}", 6, "state the limit of CPU one way"),
        ("SITE: north", "SI-TE: north", 5, "'SI-TE' cannot be an environment variable"),
        ('SITE: north, ID: "${index}"', 'SITE: "${nodes}"', 5, "unknown parameter 'nodes'"),
        ("name: nodes", 'name: "${node}"', 1, "unknown parameter 'node'"),
    ],
)
def test_what_is_wrong_with_nodes_is_said_where_it_is_written(old: str, new: str, line: int, message: str) -> None:
    assert old in TEMPLATES
    found = problems(TEMPLATES.replace(old, new, 1))
    assert any(message in problem.message for problem in found), [problem.message for problem in found]
    assert all(problem.hint and problem.column for problem in found)
    # What a template brings is wrong where the template says it.
    assert line in {problem.line for problem in found if message in problem.message}


def test_a_local_file_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "h1.bin").write_bytes(b"\0\xff")
    for name in ("h2", "h3", "h4"):
        (tmp_path / f"{name}.bin").write_text(name)
    file = tmp_path / "nodes.yaml"
    file.write_text(TEMPLATES.replace('/etc/a: "a ${node}"', '/etc/a: {from: "${node}.bin"}'))
    loaded = load(file)
    assert loaded.node("h1").files[0].source == str((tmp_path / "h1.bin").resolve())
    planned = host_plan(loaded.node("h4"), "10.0.0.4")["files"][0]
    assert planned["source"] == str((tmp_path / "h4.bin").resolve()) and planned["content"] is None
    (tmp_path / "h3.bin").write_bytes(bytes(2**20 + 1))
    with pytest.raises(ScenarioError, match="more than 1048576 bytes"):
        load(file)


def test_reservations_beyond_this_host_are_an_error_with_a_place() -> None:
    with pytest.raises(ScenarioError) as caught:
        check_nodes(load(TEMPLATES.replace("cpu: 20 MHz", "cpu-reservation: 102400 %")))
    (problem,) = caught.value.problems
    assert "nodes reserve 1024.00 CPUs" in problem.message and problem.line == 8
    check_nodes(load(TEMPLATES.replace("cpu: 20 MHz", "cpu-reservation: 1 %")))


def test_the_nominal_frequency_is_read_where_it_is_stated(tmp_path: Path) -> None:
    cpuinfo, cpufreq = tmp_path / "cpuinfo", tmp_path / "cpufreq"
    assert read_nominal_hz(cpufreq, cpuinfo)[0] == 0
    cpuinfo.write_text("processor : 0\nmodel name\t: Some Processor\ncpu MHz\t\t: 2599.998\n")
    assert read_nominal_hz(cpufreq, cpuinfo) == (2_599_998_000, "/proc/cpuinfo")
    cpufreq.mkdir()
    (cpufreq / "cpuinfo_max_freq").write_text("4000000\n")
    assert read_nominal_hz(cpufreq, cpuinfo)[0] == 4_000_000_000
    cpuinfo.write_text("model name : Some Processor @ 2.60GHz\ncpu MHz : 1200\n")
    assert read_nominal_hz(cpufreq, cpuinfo) == (2_600_000_000, "the processor's name")
    (cpufreq / "base_frequency").write_text("2100000\n")
    assert read_nominal_hz(cpufreq, cpuinfo)[0] == 2_100_000_000


@given(st.dictionaries(st.sampled_from(["mtu: 127", "cpu: 5 %", "memory: 8 MiB", "env: {A: b}"]), st.integers(0, 2)))
def test_own_keys_win_whatever_level_states_the_others(levels: dict[str, int]) -> None:
    """A key may stand in the outer template, the inner one or the node: the node is the same."""
    parts = [
        ", ".join(["kind: host"] * (level == 0) + [k for k, at in levels.items() if at == level]) for level in range(3)
    ]
    inner = f"{{template: outer{', ' if parts[1] else ''}{parts[1]}}}"
    own = f"{{template: inner{', ' if parts[2] else ''}{parts[2]}}}"
    text = f"name: x\nnetwork:\n  templates: {{outer: {{{parts[0]}}}, inner: {inner}}}\n  nodes: {{a: {own}, b: {{{', '.join(['kind: host', *levels])}}}}}\n  links: [[a, b]]\nstack: {{udp: {{}}}}\n"
    loaded = load(text)
    a, b = loaded.node("a"), loaded.node("b")
    assert (a.mtu, a.cpu_share, a.memory_bytes, a.environment) == (b.mtu, b.cpu_share, b.memory_bytes, b.environment)


GATEWAY = """name: gateway
network:
  nodes:
    gw: {kind: gateway, gateway: {domain: plant.test}}
    h[1-2]: {kind: host, address: dhcp}
    srv: host
    s[1-2]: switch
  links: [["h[1-2]", s1], [gw, s1], [gw-out, s2], [srv, s2]]
stack: {udp: {}}
"""


def test_a_gateway_is_two_hosts_and_each_side_a_subnet() -> None:
    loaded = load(GATEWAY)
    assert [node.name for node in loaded.hosts] == ["gw", "gw-out", "h1", "h2", "srv"]
    plan = build_plan(loaded)
    assert plan.addresses == {
        "gw": "10.0.0.1",
        "gw-out": "10.1.0.1",
        "h1": "10.0.0.2",
        "h2": "10.0.0.3",
        "srv": "10.1.0.2",
    }
    assert plan.hosts["gw-out"] == {"side_of": "gw", "hostname": "gw"}
    assert plan.hosts["h1"]["gateway"] == "10.0.0.1" and "srv" not in plan.hosts
    assert [program["name"] for program in plan.programs] == ["nat-gw", "dnsmasq-gw", "dhcp-h1", "dhcp-h2"]
    assert "dhcp-host=02:54:0a:00:00:02,10.0.0.2,h1,infinite" in plan.files["dnsmasq-gw.conf"]
    assert load(loaded.to_yaml()) == loaded
    bare = build_plan(load(GATEWAY.replace("domain: plant.test", "nat: false, dns: false")))
    assert bare.hosts["srv"] == {"gateway": "10.1.0.1"} and "port=0" in bare.files["dnsmasq-gw.conf"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("domain: plant.test", "uplink: true", "uplink is not available"),
        ("domain: plant.test", "domain: 'a b'", "'a b' is no name"),
        ("domain: plant.test", "outside: srv", "duplicate node 'srv'"),
        ("kind: gateway,", "kind: host,", "gateway belongs to gateways"),
        ("kind: gateway,", "kind: gateway, address: dhcp,", "a gateway leases addresses"),
        ("address: dhcp", "address: dhcp, mtu: 500", "DHCP needs packets of 576 bytes"),
        ("srv: host", "srv: {kind: switch, address: dhcp}", "address belongs to hosts"),
    ],
)
def test_what_is_wrong_with_gateways_is_said(old: str, new: str, message: str) -> None:
    found = problems(GATEWAY.replace(old, new, 1))
    assert any(message in problem.message for problem in found), [problem.message for problem in found]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[srv, s2]", "[srv, s2], [s1, s2]", "there is nothing to route between"),
        ("srv: host", "srv: {kind: host, address: dhcp}", "no gateway leases addresses where 'srv' is"),
        ("domain: plant.test", "dhcp: false", "no gateway leases addresses where 'h1' is"),
        ("domain: plant.test", "address: 10.0.0.9", "10.0.0.9 lies outside 10.1.0.0/16"),
    ],
)
def test_gateways_that_cannot_work_are_refused_when_planned(old: str, new: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        build_plan(load(GATEWAY.replace(old, new, 1)))
    assert message in caught.value.message and caught.value.hint


NAMED = """
name: named
network: {nodes: {a: {kind: host, run: [RUN]}, b: host, s: switch}, links: [[a, s], [b, s]]}
flows: [{name: FLOW, from: a, to: b, size: 9 B, period: 1 ms}]
stack: udp
run: {duration: 1 s}
"""


@pytest.mark.parametrize(
    ("run", "flow", "message"),
    [
        (r'["a\0b"]', "f", "a NUL character"),
        (r'[app, "a\x00b"]', "f", "a NUL character"),
        (r'{command: [app], env: {A: "x\0"}}', "f", "a NUL character"),
        (r'{command: [app], folder: "x\0"}', "f", "a NUL character"),
        ('{command: [app], env: {"A=B": x}}', "f", "'A=B' cannot be an environment variable"),
        ('{command: [app], name: "../../x"}', "f", "'../../x' cannot name a program: its log would lie elsewhere"),
        ('{command: [app], name: ".x"}', "f", "'.x' cannot name a program"),
        ('{command: [app], name: ""}', "f", "'' cannot name a program"),
        (r'{command: [app], name: "a\eb"}', "f", r"'a\x1bb' cannot name a program: it has a character that cannot"),
        ("{command: [app], name: sandbox}", "f", "'sandbox' cannot name a program: the run has a log of that name"),
        ("{command: [app], name: " + 121 * "x" + "}", "f", "it has more than 120 bytes"),
        ("[app]", "a/../../x", "'a/../../x' is no name of a flow"),
        ("[app]", "a//x", "'a//x' is no name of a flow"),
        ("[app]", r'"a\0b"', "a NUL character"),
    ],
)
def test_what_cannot_name_a_file_or_be_a_word_is_refused_where_it_stands(run: str, flow: str, message: str) -> None:
    text = NAMED.replace("RUN", run).replace("FLOW", flow)
    with pytest.raises(ScenarioError) as caught:
        load(text)
    (problem,) = caught.value.problems
    assert message in problem.message and problem.hint
    assert problem.line == (4 if flow != "f" else 3) and problem.column > 10


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/app", "app"),
        ("..", "program"),
        ("sandbox", "sandbox-program"),
        (r'"a\eb"', "a_b"),
        ("é" * 80, "é" * 60),
    ],
)
def test_a_program_without_a_name_has_one_that_a_file_can_have(command: str, name: str) -> None:
    found = load(NAMED.replace("RUN", f"[{command}]").replace("FLOW", "f"))
    assert [program.name for program in found.hosts[0].programs] == [name]
