// All runs as a list to filter, and one run with everything that is stored of it.

const SOLID = { colour: "#0072b2", stroke: [] };

function runsView(data) {
  const columns = [
    { title: "method", value: (run) => run.label, cell: (run) => h("a", { href: `#run=${run.id}` }, breakable(run.label)) },
    { title: "environment", value: (run) => run.env },
    { title: "seed", numeric: true, value: (run) => run.seed, cell: (run) => String(run.seed) },
    { title: "preset", value: (run) => run.preset },
    { title: "steps", numeric: true, value: (run) => run.steps, cell: (run) => steps(run.steps) + (run.finished ? "" : " unfinished") },
    { title: "result", numeric: true, value: (run) => run.final[run.headline],
      cell: (run) => known(run.final[run.headline]) ? [number(run.final[run.headline], run.headline), run.headline === "coverage" ? "" : ` ${plain(run.headline)}`] : missingMark() },
    { title: "time", note: "h:mm:ss", numeric: true, value: (run) => run.seconds, cell: (run) => duration(run.seconds) },
    { title: "started", value: (run) => run.started, cell: (run) => run.started.slice(0, 10) },
    { title: "commit", value: (run) => run.commit, cell: (run) => h("code", {}, run.commit.slice(0, 8) + (run.dirty ? "+" : "")) },
  ];
  const table = sortable(columns, data.runs, { caption: "All runs of the registry; the result is the headline of a run, coverage in mazes" });
  const said = h("output", { for: "filter" }, counted(data.runs.length, "run"));
  const words = new Map(data.runs.map((run) => [run, [run.label, run.env, `seed${run.seed}`, run.preset, run.commit, run.id, run.started].join(" ").toLowerCase()]));
  const filter = h("input", { type: "search", id: "filter", placeholder: "such as: teb-p corridor2 seed0", input: () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => wanted.every((word) => words.get(run).includes(word));
    table.show(fits);
    said.textContent = `${data.runs.filter(fits).length} of ${counted(data.runs.length, "run")}`;
  } });
  return [
    h("h1", { tabindex: -1 }, "Runs"),
    h("p", {}, "Every run of the registry, at its full length. A run's page has its configuration, its curves, its map and the command that repeats it."),
    h("div", { class: "filter" }, h("label", { for: "filter" }, "Show runs with"), filter, said),
    table.element,
  ];
}

function runView(data, run) {
  const result = run.final[run.headline];
  const tags = [run.finished ? null : "unfinished", run.dirty ? "code was changed since the commit" : null].filter(known);
  const siblings = data.runs.filter((other) => other !== run && other.env === run.env && other.hash === run.hash);
  return [
    h("p", { class: "back" }, h("a", { href: "#runs" }, "All runs")),
    h("h1", { tabindex: -1 }, `${run.label} on ${task(run.env)}, seed ${run.seed}`),
    h("p", { class: "facts" }, `${plain(run.headline)} `, h("b", {}, number(result, run.headline)),
      ` after ${whole(run.steps)} environment steps`, known(run.planned) && run.planned !== run.steps ? ` of ${whole(run.planned)}` : "",
      ` · ${duration(run.seconds)} · `, h("a", { href: `#run=${run.id}` }, `run ${run.id}`), tags.map((tag) => [" ", h("span", { class: "tag" }, tag)]).flat()),
    siblings.length ? h("p", { class: "facts" }, "Other seeds: ", siblings.map((other) => [h("a", { href: `#run=${other.id}` }, String(other.seed)), " "]).flat()) : null,
    section("Command", run.command ? h("pre", { tabindex: 0, "aria-label": "The command that repeats this run" }, run.command)
      : h("p", { class: "warning" }, "Its configuration cannot be read by this version of teb, so there is no command that repeats it.")),
    run.map ? section("Map", oneMap(data, run)) : null,
    section("Curves", smallCharts(run)),
    h("div", { class: "columns" },
      section("Configuration", configuration(run)),
      h("div", {}, section("Last values", pairs("The last value of every series", Object.entries(run.final).map(([name, value]) => [plain(name), number(value, "")]))),
        section("Where it ran", surroundings(run)))),
  ];
}

function oneMap(data, run) {
  const map = coverageMap(data, run, "share of bins visited", run.map.steps);
  return [player(data, [map], run.map.steps).element, h("div", { class: "single" }, map.element)];
}

function smallCharts(run) {
  const names = Object.keys(run.curves).filter((name) => !["env_steps", "updates", "episodes"].includes(name) && run.curves[name].some(known));
  if (!names.length) return h("p", {}, "No curve is stored.");
  names.sort((a, b) => (b === run.headline) - (a === run.headline));
  return h("div", { class: "small" }, names.map((name) =>
    lineChart([{ name, row: SOLID, steps: run.curves.env_steps, mean: run.curves[name] }],
      { title: plain(name), series: name, height: 140, compact: true, label: `${plain(name)} over environment steps` })));
}

function leaves(data, prefix) {
  return Object.entries(data).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? leaves(value, `${prefix}${name}.`) : [[prefix + name, value]]);
}

// What was changed stands first, in the order of the configuration.
function configuration(run) {
  const changed = (path) => Object.hasOwn(run.overrides, path.slice(path.lastIndexOf(".") + 1)) && path.includes(".");
  const entries = leaves(run.config, "").map(([path, value]) => [path, String(value === null ? "none" : value), changed(path)]);
  const ordered = [...entries.filter((entry) => entry[2]), ...entries.filter((entry) => !entry[2])];
  const count = ordered.filter((entry) => entry[2]).length;
  return [
    h("p", {}, count ? `${counted(count, "option")} changed, marked and first.` : "Nothing but seed and schedule differs from the preset and reading."),
    pairs(`Hash ${run.hash}`, ordered),
  ];
}

function surroundings(run) {
  const split = Object.entries(run.split).map(([name, seconds]) => [`time: ${name}`, `${number(seconds, "")} s`]);
  return pairs("Machine, versions and time", [
    ["commit", run.commit ? run.commit + (run.dirty ? " and changes" : "") : "missing"],
    ["started", run.started || "missing"],
    ...leaves(run.hardware, "").map(([name, value]) => [name, String(value === null ? "none" : value)]),
    ...leaves(run.versions, "").map(([name, value]) => [`${name} version`, String(value)]),
    ["updates", whole(run.updates)],
    ...split,
  ]);
}
