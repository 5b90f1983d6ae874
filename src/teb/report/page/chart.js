// Curves with bands; the pointer or the arrow keys read values off.

const MARGIN = { left: 46, right: 12, top: 10 };

function ticks(low, high, count) {
  const raw = (high - low) / count;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 2.5, 5, 10].find((factor) => factor * size >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    found.push(Number(value.toPrecision(12)));
  }
  return found;
}

function tick(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

function range(lines, series) {
  if (series in shares) return [0, 1];
  const values = lines.flatMap((line) => [...line.mean, ...(line.low || []), ...(line.high || [])]).filter(known);
  if (!values.length) return [0, 1];
  const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

// The last point at or before a step; null before the first and beyond the last.
function valueAt(line, step) {
  if (step > line.steps[line.steps.length - 1]) return null;
  let place = -1;
  for (let i = 0; i < line.steps.length && line.steps[i] <= step; i += 1) if (known(line.mean[i])) place = i;
  return place < 0 ? null : place;
}

// lines: {name, row, steps, mean, low, high}; options: {label, series, last, height, compact}
function lineChart(lines, options) {
  const drawing = svg("svg", { class: "chart", tabindex: 0, role: "img", "aria-label": options.label });
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const last = options.last || Math.max(1, ...lines.map((line) => line.steps[line.steps.length - 1]));
  const [bottom, top] = range(lines, options.series);
  const floor = options.height - (options.compact ? 20 : 34);
  let width = 640;
  let cursor = null;

  const x = (step) => MARGIN.left + (step / last) * (width - MARGIN.left - MARGIN.right);
  const y = (value) =>
    floor - ((value - bottom) / (top - bottom)) * (floor - MARGIN.top);

  function path(stepsOf, values) {
    let pen = "M";
    let drawn = "";
    stepsOf.forEach((step, i) => {
      if (!known(values[i])) return;
      drawn += `${pen}${x(step).toFixed(1)} ${y(values[i]).toFixed(1)}`;
      pen = "L";
    });
    return drawn;
  }

  function axes() {
    const parts = [];
    for (const value of ticks(bottom, top, options.compact ? 3 : 5)) {
      parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
      parts.push(svg("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, tick(value)));
    }
    for (const step of ticks(0, last, Math.max(2, Math.min(6, Math.floor(width / 90))))) {
      const anchor = x(step) > width - 24 ? "end" : "middle";
      parts.push(svg("text", { x: x(step), y: floor + 16, "text-anchor": anchor }, steps(step)));
    }
    parts.push(svg("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right,
      y1: floor, y2: floor }));
    if (!options.compact) {
      parts.push(svg("text", { class: "name", x: width - MARGIN.right, y: options.height - 3, "text-anchor": "end" },
        "environment steps"));
    }
    return parts;
  }

  function draw() {
    drawing.setAttribute("viewBox", `0 0 ${width} ${options.height}`);
    drawing.setAttribute("height", options.height);
    const bands = lines.filter((line) => line.low).map((line) => {
      const back = [...line.steps].reverse();
      const edge = path(line.steps, line.low) + path(back, [...line.high].reverse()).replace("M", "L") + "Z";
      return svg("path", { class: "band", d: edge, "--c": lineColour(line.row) });
    });
    const curves = lines.map((line) =>
      svg("path", { class: "curve", d: path(line.steps, line.mean), "--c": lineColour(line.row), "data-name": line.name,
        "stroke-dasharray": dashes(line.row, 2) }));
    drawing.replaceChildren(...axes(), ...bands, ...curves, svg("g", { class: "cursor" }));
    read();
  }

  function read() {
    const step = cursor === null ? last : cursor;
    const found = lines.map((line) => ({ line, place: valueAt(line, step) }));
    const there = found.filter((entry) => entry.place !== null);
    there.sort((a, b) => b.line.mean[b.place] - a.line.mean[a.place]);
    const marks = drawing.querySelector(".cursor");
    marks.replaceChildren(...(cursor === null ? [] : [
      svg("line", { x1: x(step), x2: x(step), y1: MARGIN.top, y2: floor }),
      ...there.map(({ line, place }) =>
        svg("circle", { cx: x(step), cy: y(line.mean[place]), r: 3.5, "--c": lineColour(line.row) })),
    ]));
    readout.replaceChildren(h("strong", {}, `${steps(Math.round(step))} steps`), ...there.map(({ line, place }) =>
      h("span", { class: "value" }, options.compact ? null : swatch(line.row), options.compact ? null : line.name + " ",
        h("b", {}, number(line.mean[place], options.series)),
        line.low ? " " + interval(line.low[place], line.high[place], options.series) : "")));
  }

  function move(step) {
    cursor = step === null ? null : Math.min(last, Math.max(0, step));
    read();
  }

  const keys = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 };
  drawing.addEventListener("keydown", (event) => {
    const from = cursor === null ? last : cursor;
    if (event.key in keys) move(from + (keys[event.key] * last) / 100);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(last);
    else if (event.key === "Escape") move(null);
    else return;
    event.preventDefault();
  });
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    move(((at - MARGIN.left) / (width - MARGIN.left - MARGIN.right)) * last);
  });
  drawing.addEventListener("pointerleave", () => move(null));
  drawing.addEventListener("blur", () => move(null));

  const element = h("figure", { class: options.compact ? "plot compact" : "plot" },
    h("figcaption", {}, options.title), drawing, readout);
  new ResizeObserver(() => {
    const now = Math.round(drawing.clientWidth);
    if (now && now !== width) { width = now; draw(); }
  }).observe(drawing);
  draw();
  return element;
}
