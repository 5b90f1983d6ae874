// Elements are made from text, never from markup: what a record says cannot become part of the page.

function h(tag, attributes, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Long labels may break after a sign, rather than anywhere.
function breakable(text) {
  return h("span", {}, text.split(/(?<=[_=.])/).flatMap((part, place) => (place ? [h("wbr"), part] : [part])));
}

// Black lines follow the ink of the page, so that they can be seen on a dark one.
function lineColour(row) {
  return row.colour === "#000000" ? "var(--ink)" : row.colour;
}

function dashes(row, width) {
  return row.stroke.length ? row.stroke.map((length) => length * width).join(" ") : null;
}

function swatch(row) {
  const line = svg("line", { x1: 1, x2: 25, y1: 5, y2: 5, class: "curve", "stroke-dasharray": dashes(row, 2.2) });
  return svg("svg", { class: "swatch", width: 26, height: 10, "aria-hidden": "true", "--c": lineColour(row) }, line);
}

function section(title, ...children) {
  const id = "h-" + title.toLowerCase().replace(/[^a-z]+/g, "-");
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

function choice(label, options, chosen, change) {
  const select = h("select", { change: () => change(select.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return h("label", { class: "choice" }, label + " ", select);
}
