// Tables whose columns sort. What is missing stays below what is there, in either direction.

// columns: {title, note, numeric, wide, value(row), cell(row)}; options: {caption, look, rowClass(row)}
function sortable(columns, rows, options) {
  const body = h("tbody");
  const heads = columns.map((column, place) => {
    const button = h("button", { type: "button", class: "sort", click: () => sort(place) },
      h("span", {}, column.title), h("span", { class: "arrow", "aria-hidden": "true" }));
    const note = column.note ? h("span", { class: "note" }, column.note) : null;
    return h("th", { scope: "col", class: column.numeric ? "numeric" : null, "aria-sort": "none" }, button, note);
  });
  const lines = rows.map((row) => {
    const cells = columns.map((column, place) => {
      const content = column.cell ? column.cell(row) : column.value(row);
      const look = { class: column.numeric ? "numeric" : column.wide ? "wide" : null };
      return place ? h("td", look, content) : h("th", { scope: "row" }, content);
    });
    return { row, line: h("tr", { class: options.rowClass ? options.rowClass(row) : null }, cells) };
  });

  function sort(place) {
    const before = heads[place].getAttribute("aria-sort");
    const first = columns[place].numeric ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const direction = before === first ? other : first;
    heads.forEach((head, index) => head.setAttribute("aria-sort", index === place ? direction : "none"));
    const sign = direction === "ascending" ? 1 : -1;
    const value = columns[place].value;
    const ordered = [...lines].sort((a, b) => {
      const [x, y] = [value(a.row), value(b.row)];
      if (!known(x) || !known(y)) return known(y) - known(x);
      return sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
    });
    body.append(...ordered.map((entry) => entry.line));
  }

  body.append(...lines.map((entry) => entry.line));
  const table = h("table", { class: options.look }, h("caption", {}, options.caption), h("thead", {}, h("tr", {}, heads)), body);
  const element = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.caption }, table);
  return { element, show: (wanted) => lines.forEach((entry) => { entry.line.hidden = !wanted(entry.row); }) };
}

// Name and value, one pair per line.
function pairs(caption, entries) {
  const lines = entries.map(([name, value, mark]) =>
    h("tr", { class: mark ? "changed" : null }, h("th", { scope: "row" }, breakable(name)), h("td", {}, value)));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { class: "pairs" }, h("caption", {}, caption), h("tbody", {}, lines)));
}
