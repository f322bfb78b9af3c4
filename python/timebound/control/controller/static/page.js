"use strict";
const by = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let token = sessionStorage.getItem("token"), latest = null, picked = null;

const make = (name, attributes = {}, text = null, space = null) => {
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
};
const time = (ns) => {
  if (ns === null || ns === undefined) return "";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (ns >= size) return `${+(ns / size).toPrecision(4)} ${unit}`;
  return `${ns} ns`;
};
const rate = (bps) => {
  for (const [unit, size] of [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) if (bps >= size) return `${+(bps / size).toPrecision(4)} ${unit}`;
  return `${bps} bit/s`;
};

const asked = (r) => {
  const q = r.requirements, parts = [];
  if (q.deadline_ns !== null) parts.push(`in ${time(q.deadline_ns)}`);
  if (q.period_ns !== null) parts.push(`every ${time(q.period_ns)}`);
  if (q.size_bytes !== null) parts.push(`${q.size_bytes} B`);
  if (q.priority !== null) parts.push(`class ${q.priority}`);
  return parts.join(", ");
};
const offered = (v) => {
  const parts = [];
  if (v.offer.deadline_ns !== null) parts.push(`a deadline of ${time(v.offer.deadline_ns)}`);
  if (v.offer.period_ns !== null) parts.push(`a period of ${time(v.offer.period_ns)}`);
  return parts.length ? ` Would do: ${parts.join(", or ")}.` : "";
};

const fill = (id, rows) => {
  const body = make("tbody");
  for (const { cells, key, classes } of rows) {
    const row = make("tr");
    cells.forEach((cell, index) => row.append(make("td", classes && classes[index] ? { class: classes[index] } : {}, cell)));
    if (key) {
      row.className = key === picked ? "pick picked" : "pick";
      row.tabIndex = 0;
      const pick = () => { picked = picked === key ? null : key; show(latest); };
      row.addEventListener("click", pick);
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(); });
    }
    body.append(row);
  }
  by(id).replaceChild(body, by(id).tBodies[0]);
};

/* Switches on an ellipse in the order in which they hang together, hosts outside, near their switch. */
const places = (topology) => {
  const switches = topology.switches.map((s) => s.name), known = new Set(switches), near = new Map(switches.map((s) => [s, []]));
  for (const l of topology.links) if (known.has(l.source) && known.has(l.target)) near.get(l.source).push(l.target);
  const order = [], seen = new Set();
  const visit = (s) => { if (seen.has(s)) return; seen.add(s); order.push(s); near.get(s).forEach(visit); };
  switches.forEach(visit);
  const at = new Map(), width = 800, height = 420, cx = width / 2, cy = height / 2;
  const angle = new Map();
  order.forEach((name, index) => {
    const a = (index / Math.max(1, order.length)) * 2 * Math.PI - Math.PI / 2;
    angle.set(name, a);
    at.set(name, order.length === 1 ? [cx, cy] : [cx + 230 * Math.cos(a), cy + 115 * Math.sin(a)]);
  });
  const homes = new Map();
  for (const l of topology.links) if (known.has(l.target) && !known.has(l.source)) {
    if (!homes.has(l.target)) homes.set(l.target, []);
    homes.get(l.target).push(l.source);
  }
  for (const [home, hosts] of homes) hosts.forEach((host, index) => {
    const spread = (index - (hosts.length - 1) / 2) * Math.min(0.35, 1.1 / Math.max(1, hosts.length)), a = (angle.get(home) || 0) + spread;
    const [x, y] = at.get(home);
    at.set(host, order.length === 1 ? [cx + 200 * Math.cos((index / hosts.length) * 2 * Math.PI), cy + 130 * Math.sin((index / hosts.length) * 2 * Math.PI)] : [cx + 350 * Math.cos(a), cy + 185 * Math.sin(a)]);
  });
  let spare = 0;
  for (const h of topology.hosts) if (!at.has(h.name)) at.set(h.name, [40 + 70 * spare++, height - 12]);
  return { at, width, height };
};

const draw = (state) => {
  const { at, width, height } = places(state.topology), svg = by("topology");
  const channel = [...state.channels, ...state.groups].find((c) => c.id === picked), way = new Set(channel ? channel.links : []);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const pairs = new Map();
  for (const l of state.topology.links) {
    const key = [l.source, l.target].sort().join("\n");
    if (!pairs.has(key)) pairs.set(key, []);
    pairs.get(key).push(l);
  }
  for (const links of pairs.values()) {
    const [a, b] = [at.get(links[0].source), at.get(links[0].target)];
    if (!a || !b) continue;
    const load = Math.max(...links.map((l) => l.reserved)), up = links.every((l) => l.up), chosen = links.some((l) => way.has(l.name));
    const line = make("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: `link${up ? "" : " down"}${chosen ? " chosen" : ""}`, "stroke-width": 1.5 + 8 * load }, null, SVG);
    line.append(make("title", {}, links.map((l) => `${l.name}: ${rate(l.rate_bps)}, ${(100 * l.reserved).toFixed(1)} % reserved${l.up ? "" : ", down"}`).join("\n"), SVG));
    svg.append(line);
    if (load > 0) svg.append(make("text", { x: (a[0] + b[0]) / 2 + 4, y: (a[1] + b[1]) / 2 - 3, class: "load" }, `${(100 * load).toFixed(1)} %`, SVG));
  }
  for (const s of state.topology.switches) {
    const [x, y] = at.get(s.name);
    svg.append(make("rect", { x: x - 24, y: y - 13, width: 48, height: 26, rx: 4, class: s.connected ? "node" : "node gone" }, null, SVG));
    const label = make("text", { x, y: y + 4, "text-anchor": "middle" }, s.name.length > 9 ? `…${s.name.slice(-8)}` : s.name, SVG);
    label.append(make("title", {}, `${s.name} (${s.datapath})${s.connected ? "" : ", not connected"}`, SVG));
    svg.append(label);
  }
  for (const h of state.topology.hosts) {
    const [x, y] = at.get(h.name);
    svg.append(make("circle", { cx: x, cy: y, r: 6, class: "node" }, null, SVG));
    const label = make("text", { x, y: y - 10, "text-anchor": "middle" }, h.name, SVG);
    label.append(make("title", {}, `${h.name} ${h.address} ${h.mac}`, SVG));
    svg.append(label);
  }
};

const show = (state) => {
  latest = state;
  by("main").hidden = false;
  by("login").hidden = true;
  const outcome = (r) => (r.verdict ? r.verdict.outcome : "open");
  const count = (name) => state.requests.filter((r) => outcome(r) === name).length;
  const figures = [["granted", count("granted")], ["refused", count("refused")], ["unavailable", count("unavailable")], ["open", count("open")],
    ["channels proven", `${state.channels.filter((c) => c.state === "proven").length} of ${state.channels.length}`],
    ["groups proven", `${state.groups.filter((g) => g.state === "proven").length} of ${state.groups.length}`],
    ["switches", `${state.topology.switches.filter((s) => s.connected).length} of ${state.topology.switches.length}`],
    ["most reserved", `${(100 * Math.max(0, ...state.topology.links.map((l) => l.reserved))).toFixed(1)} %`]];
  by("figures").replaceChildren(...figures.map(([name, value]) => { const item = make("li", {}, name); item.prepend(make("b", {}, value)); return item; }));
  const now = new Date(state.time_ns / 1e6).toLocaleTimeString();
  by("status").textContent = `${state.ready ? "deciding" : "waiting for the network"}; table ${state.store_connected ? "connected" : "out of reach"}; as of ${now}`;
  draw(state);
  fill("requests", state.requests.map((r) => ({ cells: [r.topic, `${r.client_id ?? "?"}${r.user ? ` (${r.user})` : ""}`, r.side, asked(r), outcome(r), r.verdict ? r.verdict.priority : "", r.verdict ? time(r.verdict.bound_ns) : "",
    r.verdict ? r.verdict.reason + offered(r.verdict) : ""], classes: [null, null, null, null, outcome(r), null, null, "words"] })));
  fill("channels", state.channels.map((c) => ({ key: c.id, cells: [c.id, `${c.source_address}:${c.source_port}`, `${c.destination_address}:${c.destination_port}`, c.priority, rate(c.rate_bps), c.state + (c.reason ? `: ${c.reason}` : ""), time(c.bound_ns),
    c.links.join(", ") + (c.backup.length ? " (with a disjoint way)" : "")], classes: [null, null, null, null, null, c.state, null, "words"] })));
  fill("groups", state.groups.map((g) => ({ key: g.id, cells: [g.id, g.topic, g.origin, g.members.join(", "), g.address, g.priority, rate(g.rate_bps), g.state + (g.reason ? `: ${g.reason}` : ""), time(g.bound_ns),
    g.links.join(", ")], classes: [null, null, null, null, null, null, null, g.state, null, "words"] })));
  fill("links", state.topology.links.map((l) => ({ cells: [l.name, rate(l.rate_bps), `${(100 * l.reserved).toFixed(1)} %`, l.up ? "up" : "down"], classes: [null, null, null, l.up ? "up" : "down"] })));
  document.body.dataset.shown = "yes";
};

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});
/* Streams are read by fetch: EventSource cannot present a token. */
const listen = async () => {
  const answer = await fetch("/api/v1/events", { headers: headers() });
  if (answer.status === 401 || answer.status === 403) { by("login").hidden = false; by("main").hidden = true; by("status").textContent = token ? "this token is not known here" : "a token is needed"; return false; }
  if (!answer.ok) throw new Error(`${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    const data = events.map((event) => event.split("\n").find((line) => line.startsWith("data: "))).filter(Boolean).pop();
    if (data) show(JSON.parse(data.slice(6)));
  }
};
const follow = async () => {
  for (;;) {
    try { if (!(await listen())) return; } catch (error) { by("status").textContent = `the controller does not answer (${error.message}); trying again`; }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
};
by("login").addEventListener("submit", (event) => { event.preventDefault(); token = by("token").value.trim(); sessionStorage.setItem("token", token); by("token").value = ""; follow(); });
by("scenario").addEventListener("click", async (event) => {
  event.preventDefault();
  const answer = await fetch("/scenario", { headers: headers() });
  const link = make("a", { href: URL.createObjectURL(await answer.blob()), download: "granted.yaml" });
  link.click();
  URL.revokeObjectURL(link.href);
});
follow();
