"use strict";
// Sorting by a click on a header, filtering by words.
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.tabIndex = 0;
    const sort = () => {
      const up = header.getAttribute("aria-sort") !== "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        if (cell.dataset.value === undefined) return cell.textContent.trim();
        return cell.dataset.value === "" ? null : Number(cell.dataset.value);
      };
      const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null); // what is not known comes last
        const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    };
    header.addEventListener("click", sort);
    header.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort();
      }
    });
  });
}

for (const input of document.querySelectorAll("input[data-for]")) {
  const rows = [...document.getElementById(input.dataset.for).tBodies[0].rows];
  const count = document.getElementById(input.dataset.for + "-count");
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const cells = [...row.cells].map((cell) => cell.textContent.trim().toLowerCase());
      row.hidden = !words.every((word) => cells.some((text) => text.includes(word)));
      shown += !row.hidden;
    }
    count.textContent = shown < rows.length ? `${shown} of ${rows.length}` : `${rows.length} rows`;
  };
  input.addEventListener("input", filter);
  filter();
}
