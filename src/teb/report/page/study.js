// One study: its table, and a picker that rules its curves and maps.

const FIRST = 6; // rows that are picked at first where there are many

function studyView(data, study) {
  const ours = study.rows.filter((row) => !row.published);
  const seeds = ours.flatMap((row) => row.cells.filter(known).map((cell) => cell.values.length));
  const few = seeds.filter((count) => count < data.few).length;
  const facts = [
    `${study.stored} of ${counted(study.planned, "planned run")} stored`,
    seeds.length ? `${span(seeds)} ${Math.max(...seeds) === 1 ? "seed" : "seeds"} per cell` : null,
    `preset ${study.preset}`,
  ];
  return [
    h("h1", { tabindex: -1 }, study.title),
    h("p", { class: "facts" }, h("code", {}, study.name), " · ", facts.filter(known).join(" · ")),
    study.stored < study.planned
      ? h("p", { class: "warning" }, `${counted(study.planned - study.stored, "run")} not made yet; `,
        h("code", {}, study.command), " names them.")
      : null,
    few ? h("p", { class: "warning" }, `${few} of ${counted(seeds.length, "cell")} have fewer than ${data.few} seeds: `
      + "deviations and intervals of so few are rough, and mostly too small.") : null,
    section("Table", finalTable(data, study), notesOf(study)),
    study.envs.length > 1 && ours.some((row) => row.aggregates) ? section("Over all environments", aggregateTable(data, study)) : null,
    seeds.length ? section(hasMaps(data, ours) ? "Curves and maps" : "Curves", explorer(data, study, ours))
      : section("Curves", h("p", {}, "No run of this study is stored, so there is nothing to draw.")),
  ];
}

function span(counts) {
  const [low, high] = [Math.min(...counts), Math.max(...counts)];
  return low === high ? String(low) : `${low} to ${high}`;
}

function rowName(row) {
  return [breakable(row.name), row.published ? [" ", h("span", { class: "tag" }, "published")] : []].flat();
}

function finalTable(data, study) {
  const best = study.series in shares ? 1
    : Math.max(...study.rows.flatMap((row) => row.cells.filter(known).map((cell) => cell.high || cell.mean)), 0);
  const columns = [{ title: "method", value: (row) => row.name, cell: rowName }];
  study.envs.forEach((env, place) => columns.push({
    title: task(env),
    note: comparedAt(study, study.compared[place]),
    numeric: true,
    value: (row) => row.cells[place] && row.cells[place].mean,
    cell: (row) => finalCell(data, study, row, row.cells[place], best),
  }));
  if (study.envs.length > 1) columns.push({
    title: "mean", note: "95 % interval", numeric: true,
    value: (row) => row.overall && row.overall.mean,
    cell: (row) => row.published ? "-" : overallCell(row.overall, study.series),
  });
  const caption = `${study.measure} at the end, mean ± standard deviation over seeds, 95 % bootstrap interval of the mean`;
  return sortable(columns, study.rows, {
    caption, look: study.envs.length > 3 ? "results stacked" : "results", rowClass: (row) => (row.published ? "published" : null),
  }).element;
}

function comparedAt(study, compared) {
  if (!compared.steps) return null;
  return `at ${steps(compared.steps)}${compared.cut ? ` of ${steps(study.steps)}` : ""} steps`;
}

function missingMark() {
  return h("span", { class: "missing" }, "missing");
}

function overallCell(value, series) {
  if (!value) return missingMark();
  return [h("span", { class: "main" }, number(value.mean, series)),
    h("span", { class: "under" }, interval(value.low, value.high, series))];
}

function finalCell(data, study, row, cell, best) {
  if (!cell) return missingMark();
  const spread = known(cell.std) ? ` ± ${number(cell.std, study.series)}` : "";
  const main = h("span", { class: "main" }, number(cell.mean, study.series) + spread, cell.mixed ? " †" : "");
  if (row.published) return main;
  const count = cell.values.length;
  const inter = known(cell.low) ? interval(cell.low, cell.high, study.series) : "no interval";
  return h("div", { class: "cell" }, strip(row, cell, best),
    h("div", {}, main, h("span", { class: "under" }, `${inter} · ${counted(count, "seed")}`)));
}

// Interval as a bar, mean as a tick, seeds as dots.
function strip(row, cell, best) {
  const at = (value) => 2 + 92 * Math.min(1, Math.max(0, value / best));
  const parts = [svg("line", { class: "rail", x1: 2, x2: 94, y1: 6, y2: 6 })];
  if (known(cell.low)) parts.push(svg("line", { class: "bar", x1: at(cell.low), x2: at(cell.high), y1: 6, y2: 6 }));
  parts.push(...cell.values.map((value) => svg("circle", { cx: at(value), cy: 6, r: 1.8 })));
  parts.push(svg("line", { class: "tick", x1: at(cell.mean), x2: at(cell.mean), y1: 1.5, y2: 10.5 }));
  return svg("svg", { class: "strip", viewBox: "0 0 96 12", width: 96, height: 12, "aria-hidden": "true", "--c": lineColour(row) }, parts);
}

function aggregateTable(data, study) {
  const names = ["mean", "median", "IQM", `P(better than ${data.baseline})`];
  const columns = [{ title: "method", value: (row) => row.name, cell: rowName }];
  names.forEach((title, place) => columns.push({
    title, numeric: true,
    value: (row) => row.aggregates && row.aggregates[place] ? row.aggregates[place].mean : null,
    cell: (row) => {
      if (!row.aggregates) return missingMark();
      if (!row.aggregates[place]) return "-";
      return overallCell(row.aggregates[place], place === 3 ? "coverage" : study.series);
    },
  }));
  const caption = `${study.measure} over ${study.envs.length} environments and all seeds, with 95 % bootstrap intervals`;
  return [
    h("p", {}, "Only rows with runs on every environment can be aggregated; the others say missing."),
    sortable(columns, study.rows.filter((row) => !row.published), { caption, look: "results" }).element,
  ];
}

function notesOf(study) {
  return h("details", { class: "notes" }, h("summary", {}, "What these numbers are"),
    h("ul", {}, study.notes.map((note) => h("li", {}, note))));
}

// The first row, which the study is about, the best of an environment, and the uniform policy.
function firstPicked(data, ours, env) {
  if (ours.length <= FIRST + 2) return new Set(ours.map((row) => row.name));
  const there = ours.filter((row) => row.cells[env]);
  const ranked = there.sort((a, b) => b.cells[env].mean - a.cells[env].mean).slice(0, FIRST);
  return new Set([ours[0].name, ...ranked.map((row) => row.name), data.baseline]);
}

function hasMaps(data, rows) {
  return rows.some((row) => row.cells.filter(known).some((cell) => cell.runs.some((place) => data.runs[place].map)));
}

function explorer(data, study, ours) {
  let env = Math.max(0, study.envs.findIndex((_, place) => ours.some((row) => row.cells[place])));
  const picked = firstPicked(data, ours, env);
  let seed = null;
  let playing = null;
  const stage = h("div", { class: "stage" });
  const count = h("span", { class: "count" });

  const boxes = ours.map((row) => {
    const box = h("input", { type: "checkbox", value: row.name, checked: picked.has(row.name), change: () => {
      if (box.checked) picked.add(row.name); else picked.delete(row.name);
      draw();
    } });
    return { row, box, label: h("label", { class: "pick" }, box, swatch(row), breakable(row.name), h("span", { class: "lack" })) };
  });
  const all = (wanted) => () => {
    for (const { row, box } of boxes) {
      box.checked = wanted;
      if (wanted) picked.add(row.name); else picked.delete(row.name);
    }
    draw();
  };
  const picker = h("fieldset", { class: "picker" },
    h("legend", {}, "Methods ", count),
    h("div", { class: "buttons" }, h("button", { type: "button", click: all(true) }, "All"), h("button", { type: "button", click: all(false) }, "None")),
    h("div", { class: "list" }, boxes.map((entry) => entry.label)));
  const envs = h("fieldset", { class: "segments" }, h("legend", {}, "Environment"), study.envs.map((name, place) =>
    h("label", {}, h("input", { type: "radio", name: "env", value: name, checked: place === env, change: () => { env = place; draw(); } }),
      h("span", {}, task(name)))));

  function draw() {
    if (playing) playing.pause();
    count.textContent = `${picked.size} of ${ours.length}`;
    for (const { row, label } of boxes) {
      label.querySelector(".lack").textContent = row.cells[env] ? "" : "missing";
    }
    const rows = ours.filter((row) => picked.has(row.name));
    const lacking = rows.filter((row) => !row.cells[env]).map((row) => row.name);
    stage.replaceChildren(...[
      curves(study, env, rows),
      lacking.length ? h("p", { class: "lacking" }, `missing on ${task(study.envs[env])}: ${lacking.join(", ")}`) : null,
      maps(rows),
    ].filter(known));
  }

  function maps(rows) {
    const last = study.compared[env].steps;
    const runsOf = (row) => (row.cells[env] ? row.cells[env].runs.map((place) => data.runs[place]) : []);
    const seeds = [...new Set(rows.flatMap((row) => runsOf(row).filter((run) => run.map).map((run) => run.seed)))].sort((a, b) => a - b);
    if (!seeds.length) return hasMaps(data, ours) ? h("p", { class: "lacking" }, "No coverage map of these rows is stored.") : null;
    if (!seeds.includes(seed)) seed = seeds[0];
    const shown = [];
    const figures = rows.map((row) => {
      const run = runsOf(row).find((one) => one.seed === seed && one.map);
      if (!run) return h("figure", { class: "map absent" }, h("div", {}, "missing"), h("figcaption", {}, row.name));
      const map = coverageMap(data, run, h("a", { href: `#run=${run.id}` }, breakable(row.name)), last);
      shown.push(map);
      return map.element;
    });
    playing = player(data, shown, last);
    return h("div", { class: "maps" }, h("h3", {}, `Where they went: ${task(study.envs[env])}`),
      choice("Seed", seeds.map((value) => [String(value), String(value)]), String(seed), (value) => { seed = Number(value); draw(); }),
      playing.element,
      h("div", { class: "gallery" }, figures));
  }

  draw();
  return h("div", { class: "explorer" }, h("aside", { "aria-label": "What is shown" }, study.envs.length > 1 ? envs : null, picker), stage);
}

function curves(study, env, rows) {
  const lines = rows.filter((row) => row.curves[env]).map((row) => ({ name: row.name, row, ...row.curves[env] }));
  const title = [h("b", {}, task(study.envs[env])), `: ${plain(study.series)}, mean over seeds and 95 % bootstrap interval`];
  return lineChart(lines, {
    title, series: study.series, last: study.compared[env].steps, height: 340,
    label: `${plain(study.series)} on ${study.envs[env]} over environment steps, ${counted(lines.length, "curve")}. Arrow keys read values.`,
  });
}
