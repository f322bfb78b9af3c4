"use strict";
// Progressive enhancement only: without it every figure and table is there, in order of urgency.
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return null;
    const raw = cell.getAttribute("data-v");
    if (raw === null) return cell.textContent;
    return raw === "" ? null : Number(raw);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
        // Absent figures stay last in both directions.
        rows.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : down ? compare(b, a) : compare(a, b)));
        table.tBodies[0].append(...rows.map(([, row]) => row));
      });
    });
  }
  for (const tools of document.querySelectorAll(".tools[data-for]")) {
    const table = document.getElementById(tools.dataset.for);
    const input = document.createElement("input");
    const said = document.createElement("span");
    const rows = [...table.tBodies[0].rows].map((row) => [row.textContent.toLowerCase(), row]);
    input.type = "search";
    input.placeholder = "Filter rows, e.g. missed";
    input.setAttribute("aria-label", "Filter rows of the table");
    said.className = "muted";
    said.setAttribute("role", "status");
    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [text, row] of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      said.textContent = `${shown} of ${rows.length} rows`;
    };
    let waiting = 0;
    input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
    tools.append(input, said);
    filter();
  }
  const box = document.createElement("div");
  box.id = "tip";
  box.hidden = true;
  document.body.append(box);
  for (const mark of document.querySelectorAll("svg .m")) {
    const title = mark.querySelector(":scope > title");
    if (!title) continue;
    mark.setAttribute("data-tip", title.textContent);
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const show = (event) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    box.hidden = mark === null;
    if (mark === null) return;
    box.textContent = mark.getAttribute("data-tip");
    const x = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 6);
    const y = event.clientY + 18 + box.offsetHeight > innerHeight ? event.clientY - box.offsetHeight - 10 : event.clientY + 18;
    box.style.left = `${Math.max(6, x)}px`;
    box.style.top = `${Math.max(6, y)}px`;
  };
  document.addEventListener("pointermove", show, { passive: true });
  document.addEventListener("pointerdown", show, { passive: true });
  document.addEventListener("scroll", () => { box.hidden = true; }, { passive: true });
})();
