"""The page of a run: well formed, self-contained, deaf to what names try to say, and true to summary.json."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import report_runs as runs
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import Reader, read_page

from timebound.report import FIGURES, ReportError, figure_svg, flow_table, write_report
from timebound.report.markup import el

SVG = "{http://www.w3.org/2000/svg}"


def row_of(page: Reader, table: str, heading: str) -> dict[str, Any]:
    """A table's row by its heading: column title to the exact value (figures) or the words."""
    head, *body = page.rows[table]
    for row in body:
        if row[0].text == heading:
            return {
                title.text: (float(cell.attributes["data-v"]) if cell.attributes["data-v"] else None)
                if "data-v" in cell.attributes
                else cell.text
                for title, cell in zip(head, row, strict=True)
            }
    raise AssertionError(f"no row {heading!r}")


@pytest.mark.parametrize("kind", runs.KINDS)
def test_every_kind_of_run_gives_a_well_formed_page_without_outside_resources(kind: str, report: Any) -> None:
    page = read_page(report(runs.KINDS[kind]()))
    for element in page.elements:
        for name in ("src", "srcset", "href", "xlink:href", "action", "data", "poster"):
            target = element.attributes.get(name)
            assert target is None or (name == "href" and target.startswith("#")), f"{element.name} {name}={target}"
        assert not any(name.startswith("on") for name in element.attributes)
        assert "@import" not in element.text or element.name != "style"
    assert [e.name for e in page.elements].count("h1") == 1


@pytest.mark.parametrize("kind", runs.KINDS)
def test_identities_are_unique_and_references_lead_somewhere(kind: str, report: Any) -> None:
    page = read_page(report(runs.KINDS[kind]()))
    identities = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(identities) == len(set(identities))
    for element in page.elements:
        referred = element.attributes.get("aria-labelledby", "").split()
        if element.attributes.get("href", "").startswith("#"):
            referred.append(element.attributes["href"][1:])
        if "url(#" in element.attributes.get("fill", ""):
            referred.append(element.attributes["fill"][5:-1])
        assert set(referred) <= set(identities)


def test_names_from_the_run_never_become_markup(report: Any) -> None:
    path = report(runs.hostile())
    page = read_page(path)
    assert [e.name for e in page.elements].count("script") == 1
    assert "img" not in {e.name for e in page.elements}
    content = path.read_text(encoding="utf-8")
    assert "\u202e" not in content and "\x07" not in content
    for name in FIGURES:
        for element in ElementTree.fromstring(figure_svg(name, runs.hostile())).iter():
            assert element.tag.removeprefix(SVG) not in {"script", "img", "foreignObject"}


@settings(max_examples=150, deadline=None)
@given(st.text(), st.text())
def test_whatever_the_text_an_element_holds_it_and_nothing_else(content: str, attribute: str) -> None:
    reader = Reader()
    reader.feed(el("p", el("b", content), title=attribute))
    reader.close()
    assert [e.name for e in reader.elements] == ["p", "b"]
    assert list(reader.elements[0].attributes) == ["title"]


def test_the_flow_table_holds_exactly_the_figures_of_the_summary(report: Any) -> None:
    summary = runs.missed()
    page = read_page(report(summary))
    for flow in summary["flows"]:
        row = row_of(page, "table-flows", f"{flow['flow']} → {flow['receiver']}")
        assert row["network max"] == flow["latency_us"]["max"]
        assert row["network p99"] == flow["latency_us"]["p99"]
        assert row["application p50"] == flow["application_us"]["p50"]
        assert row["simulated max"] == flow["simulated_max_us"]
        assert row["bound"] == flow["bound_us"]["bound"]
        assert row["bound, arrivals observed"] == flow["bound_us"]["observed_arrivals"]
        assert row["deadline"] == flow["deadline_us"]
        assert row["margin"] == pytest.approx(flow["deadline_us"] - flow["end_to_end_us"]["bound"])
        assert (row["sent"], row["lost"], row["late"]) == (flow["sent"], flow["lost"], flow["late"])
        assert flow["verdict"] in row["verdict"]


def test_the_other_tables_hold_the_figures_of_the_summary(report: Any) -> None:
    summary = runs.overloaded()
    page = read_page(report(summary))
    for port in summary["ports"]:
        row = row_of(page, "table-ports", port["port"].replace("->", " → "))
        assert row["load declared"] == port["utilisation_declared"]
        assert row["load observed"] == port["utilisation_observed"]
        assert row["dropped"] == port["dropped"]
        assert row["largest queue"] == port["largest_queue_bytes"]
        assert row["backlog bound"] == port["backlog_bound_bytes"]
        assert row["why no finite bound"] == (port["bound_reason"] or "")
    segment = summary["flows"][1]["segments"][0]
    row = row_of(page, "table-segments", "beta → h5")
    assert (row["jitter declared"], row["jitter observed"]) == (
        segment["declared_jitter_us"],
        segment["observed_jitter_us"],
    )
    assert row_of(page, "table-nodes", "h1")["memory max"] == summary["nodes"][0]["memory_bytes"]["max"]
    assert row_of(page, "table-undeclared", "h1")["frames"] == 12


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("all-well", "Met"),
        ("violated", "Violated"),
        ("missed", "Missed"),
        ("disturbed", "Disturbed"),
        ("overloaded", "Unbounded"),
    ],
)
def test_the_banner_says_the_verdict_first(kind: str, word: str, report: Any) -> None:
    page = read_page(report(runs.KINDS[kind]()))
    banner = next(e for e in page.elements if "verdict" in e.attributes.get("class", "").split())
    assert word in banner.text
    if kind == "violated":
        assert "is-violated" in banner.attributes["class"] and "beta → h5" in banner.text


def test_where_there_is_no_bound_there_is_a_reason_and_no_number(report: Any) -> None:
    summary = runs.overloaded()
    page = read_page(report(summary))
    assert row_of(page, "table-flows", "beta → h5")["bound"] is None
    assert row_of(page, "table-flows", "alpha → h3")["bound"] is None
    shown = {r[0].text: r[4].text for r in page.rows["table-flows"][1:]}
    assert shown["beta → h5"] == "no finite bound"
    assert shown["alpha → h3"] == "unsupported"
    drawn = "".join(ElementTree.fromstring(figure_svg("flows", summary)).itertext())
    assert "no finite bound: utilisation 1.69" in drawn and "unsupported: s2->h3 loses frames" in drawn


def test_a_violation_is_red_in_the_figure_and_nothing_else_is() -> None:
    def alarms(summary: dict[str, Any]) -> int:
        tree = ElementTree.fromstring(figure_svg("flows", summary))
        return sum("f-alarm" in e.get("class", "").split() and e.tag == f"{SVG}rect" for e in tree.iter())

    assert alarms(runs.all_well()) == 0
    assert alarms(runs.violated()) == 2  # the bar and its key


def test_every_figure_is_an_svg_of_its_own_with_title_and_description() -> None:
    for kind, make in runs.KINDS.items():
        for name in FIGURES:
            root = ElementTree.fromstring(figure_svg(name, make()))
            assert root.tag == f"{SVG}svg" and root.get("role") == "img"
            assert root[0].tag == f"{SVG}title" and root[1].tag == f"{SVG}desc", (kind, name)
            assert not list(root.iter(f"{SVG}style"))
            width, height = (float(root.get(side, "0")) for side in ("width", "height"))
            for element in root.iter():
                for key, most in (
                    ("x", width),
                    ("x1", width),
                    ("x2", width),
                    ("cx", width),
                    ("y", height),
                    ("y1", height),
                    ("y2", height),
                ):
                    place = element.get(key)
                    assert place is None or -1 <= float(place) <= most + 1, (kind, name, element.tag, key, place)


def test_a_run_of_5000_flows_and_350_nodes_stays_small_and_says_what_it_leaves_out(report: Any) -> None:
    path = report(runs.huge())
    content = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 10_000_000
    assert "The 24 most critical of 5000 flows" in content
    assert "the 2\u202f000 most critical of 5\u202f000" in content


def test_the_report_of_an_earlier_run_leaves_no_figure_behind(tmp_path: Path) -> None:
    folder = runs.write(tmp_path / "run", runs.all_well())
    write_report(folder, png=False)
    assert (folder / "figures" / "cdf.svg").exists()
    write_report(runs.write(folder, runs.predict_only()), png=False)
    assert not (folder / "figures" / "cdf.svg").exists() and (folder / "figures" / "flows.svg").exists()


def test_pngs_are_written_with_words_in_them(report: Any) -> None:
    folder = report(runs.all_well(), png=True).parent / "figures"
    names = {path.stem for path in folder.glob("*.svg")}
    if (folder / "PNG-MISSING.txt").exists():
        pytest.skip((folder / "PNG-MISSING.txt").read_text(encoding="utf-8"))
    assert names == {path.stem for path in folder.glob("*.png")} == set(FIGURES)
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 3000


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": 2}', '{"schema": "1"}', "\x00", "[" * 100_000])
def test_a_damaged_summary_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "summary.json").write_text(content, encoding="utf-8")
    with pytest.raises(ReportError, match=r"summary\.json"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="does not exist"):
        write_report(tmp_path / "nothing")
    with pytest.raises(ReportError, match="there is no figure 'pie'"):
        figure_svg("pie", {})


Json = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_figure_may_be_absent_or_odd(data: st.DataObject) -> None:
    """Replaces parts of a good summary by anything; the page must still come and be well formed."""
    from timebound.report.page import render
    from timebound.report.run import Run

    summary = runs.overloaded()
    for _ in range(data.draw(st.integers(1, 4))):
        target: Any = summary
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(target[key], dict | list) and target[key] and data.draw(st.booleans()):
                target = target[key]
                continue
            if key != "schema":
                target[key] = data.draw(Json)
            break
    reader = Reader()
    reader.feed(render(Run.parse(summary)))
    assert not reader.open or reader.open == []


def test_the_closing_table_leaves_out_columns_without_figures() -> None:
    full = flow_table(runs.missed())
    assert [c.title for c in full.columns][:2] == ["flow", "receiver"]
    assert {len(row.cells) for row in full.rows} == {len(full.columns)}
    assert full.rows[0].style == "bold yellow" and "missed" in full.rows[0].cells[-1]
    predicted = flow_table(runs.predict_only())
    titles = [c.title for c in predicted.columns]
    assert "bound" in titles and "observed max" not in titles and "simulated max" not in titles
    unbounded = flow_table(runs.overloaded())
    column = [c.title for c in unbounded.columns].index("bound")
    assert unbounded.rows[0].cells[column] == "none"
    assert flow_table(runs.empty()).rows == ()
    assert json.dumps([row.cells for row in full.rows])


def test_seconds_in_which_the_emulator_was_late_are_marked(tmp_path: Path) -> None:
    folder = runs.write(tmp_path / "run", runs.disturbed())
    runs.add_frames(folder)
    content = write_report(folder, png=False).read_text(encoding="utf-8")
    assert "3 s: the emulator was late" in content and "4 s: the emulator was late" in content
    assert "2 s: the emulator was late" not in content and "5 s: the emulator was late" not in content
    assert "Share of frames later" in content and "limit for p99: 1 ms" in content
    (folder / "frames.parquet").write_bytes(b"PAR1 no table")
    assert "Share of frames later" not in write_report(folder, png=False).read_text(encoding="utf-8")


def test_the_packets_of_captures_are_shown_or_the_reason_why_not(report: Any) -> None:
    page = read_page(report(runs.all_well()))
    row = row_of(page, "packet-table", "h1-s1")
    assert row["frames"] == 3604 and row["overhead on the wire"] == 0.3297 and row["retransmissions"] == 3
    assert row_of(page, "packet-table", "h1 → s1")["TCP control"] == pytest.approx(400 / 1802)
    nothing = runs.all_well()
    del nothing["packets"]
    text = report(nothing).read_text(encoding="utf-8")
    assert 'id="packets"' not in text and 'href="#packets"' not in text
    missing = runs.all_well()
    missing["packets"] = {"status": "missing", "reason": "tshark is not installed: <b>", "captures": []}
    text = report(missing).read_text(encoding="utf-8")
    assert "tshark is not installed: &lt;b&gt;" in text and 'href="#packets"' in text


def test_the_data_plane_of_the_run_is_named_with_what_it_cost(report: Any) -> None:
    html = report(runs.all_well()).read_text(encoding="utf-8")
    assert "packet ring; 200 frames/s are declared; arrivals stamped by the kernel" in html
    assert "back-pressure at the hosts" in html
    assert "198 in, 198 out on average; 678 out in the busiest 100 ms" in html
    predicted = report(runs.predict_only()).read_text(encoding="utf-8")
    assert "packet ring" not in predicted and "Cost of the data plane" not in predicted


def test_what_was_not_measured_stands_above_everything_and_once(report: Any) -> None:
    summary = runs.all_well()
    note = "Messages of 'alpha' are <b>not</b> measured"
    summary["verdict"] = summary["flows"][0]["verdict"] = "unmeasured"
    summary["measured_notes"] = [note]
    summary["scenario"]["notes"] = ["A bound holds while nothing is lost.", note]
    path = report(summary)
    page = path.read_text() if isinstance(path, Path) else path
    said = page.replace("&lt;", "<").replace("&gt;", ">").replace("&#x27;", "'").replace("&#39;", "'")
    assert said.count(note) == 1 and "<b>not</b>" not in page
    assert said.index("What was not measured, or is not as declared") < said.index(note) < said.index("<h2")
    assert "1 of 4 flows was not measured, or not to the end, first" in said and "The notes say why." in said
