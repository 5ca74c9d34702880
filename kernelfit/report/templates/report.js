// Sorting, filtering and values under the pointer; the page reads the same without them.
"use strict";

for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  sortable(table, body);
  if (body.rows.length >= 8) filterable(table, body);
}
for (const data of document.querySelectorAll(".plot > script")) hover(data);

function sortable(table, body) {
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[index];
        const text = cell.dataset.value ?? cell.textContent.trim();
        const value = Number(text);
        return text === "" || Number.isNaN(value) ? text : value;
      };
      const sign = down ? -1 : 1;
      // Numbers first, then words; a row without a value stays last either way.
      const order = (a, b) => {
        const x = key(a), y = key(b);
        if (typeof x === "number" && typeof y === "number") return sign * (x - y);
        if (typeof x === "number") return -1;
        if (typeof y === "number") return 1;
        return sign * x.localeCompare(y);
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}

function filterable(table, body) {
  const label = document.createElement("label");
  label.className = "filter";
  const field = document.createElement("input");
  field.type = "search";
  field.autocomplete = "off";
  const count = document.createElement("output");
  label.append("Filter ", field, " ", count);
  label.title = "Rows that hold all of these words";
  table.closest(".scroll").before(label);
  field.setAttribute("aria-controls", table.id);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      // Cells touch in textContent; a blank keeps their words apart.
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = words.length ? `${shown} of ${body.rows.length} rows` : "";
  });
}

function hover(data) {
  const spots = JSON.parse(data.textContent);
  const svg = data.parentElement.querySelector("svg");
  const told = document.getElementById("told");
  const ring = document.createElementNS(svg.namespaceURI, "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", 5);
  let at = -1;
  const hide = () => { told.hidden = true; ring.remove(); at = -1; };
  const show = (index) => {
    if (index === at) return;
    at = index;
    const [x, y, words] = spots[index];
    ring.setAttribute("cx", x);
    ring.setAttribute("cy", y);
    svg.append(ring);
    told.textContent = words;
    told.hidden = false;
    const place = ring.getBoundingClientRect(), room = document.documentElement.clientWidth;
    const wide = told.offsetWidth;
    told.style.left = `${Math.max(8, Math.min(place.left, room - wide - 8)) + scrollX}px`;
    told.style.top = `${place.bottom + 8 + scrollY}px`;
  };
  svg.addEventListener("pointermove", (event) => {
    const matrix = svg.getScreenCTM();
    if (!matrix) return;
    const here = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    let best = -1, least = 24 * 24;
    spots.forEach(([x, y], index) => {
      const far = (x - here.x) ** 2 + (y - here.y) ** 2;
      if (far < least) { least = far; best = index; }
    });
    best < 0 ? hide() : show(best);
  });
  svg.addEventListener("pointerleave", hide);
  // The same for the keyboard: arrows walk from place to place, Escape leaves.
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    show((at + step + spots.length) % spots.length);
  });
}
