// Click a heading to sort its table; the page reads the same without it.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
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
      const rows = [...body.rows].sort(order);
      body.append(...rows);
    });
  });
}
