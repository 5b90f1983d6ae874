// What the address asks for: #overview, #study=NAME, #runs, #run=ID.

function overview(data) {
  const newest = data.runs.map((run) => run.started).sort().pop();
  const columns = [
    { title: "study", value: (study) => study.name, cell: (study) => h("a", { href: `#study=${encodeURIComponent(study.name)}` }, study.name) },
    { title: "what", wide: true, value: (study) => study.title },
    { title: "runs stored", numeric: true, value: (study) => study.stored / study.planned, cell: stored },
    { title: "rows", numeric: true, value: (study) => study.rows.filter((row) => !row.published).length,
      cell: (study) => String(study.rows.filter((row) => !row.published).length) },
    { title: "environments", numeric: true, value: (study) => study.envs.length, cell: (study) => String(study.envs.length) },
    { title: "steps", numeric: true, value: (study) => study.steps, cell: (study) => steps(study.steps) },
    { title: "preset", value: (study) => study.preset },
  ];
  return [
    h("h1", { tabindex: -1 }, "Overview"),
    h("p", { class: "facts" }, `${counted(data.runs.length, "run")} in ${counted(data.studies.length, "study").replace("studys", "studies")}`,
      newest ? `, the newest of ${newest.slice(0, 10)}` : ""),
    section("Studies", data.studies.length ? sortable(columns, data.studies, { caption: "A study is a table: rows, environments and seeds" }).element : h("p", {}, "None.")),
    section("How to read it", h("ul", {}, [
      "A cell is the mean ± sample standard deviation over seeds; below it a 95 % bootstrap interval of the mean and the number of seeds. The strip shows the interval as a bar, each seed as a dot and the mean as a tick.",
      `A study says where its cells have fewer than ${data.few} seeds: deviations and intervals of so few are rough, and mostly too small.`,
      "What was not run says missing. Nothing stands in for it.",
      "Rows tagged published are numbers from papers, not measured here, often over more steps.",
      `Uniform random actions (${data.baseline}) stand in every table: what ends below them explores worse than chance.`,
      "Curves end where all runs of their environment have been. Maps colour each bin by the time of its first visit.",
    ].map((line) => h("li", {}, line)))),
    data.warnings.length ? section("Left out", h("ul", { class: "warnings" }, data.warnings.map((line) => h("li", {}, line)))) : null,
  ];
}

function stored(study) {
  const bar = h("span", { class: "bar", "aria-hidden": "true", "--part": `${(100 * study.stored) / (study.planned || 1)}%` });
  return [`${study.stored} of ${study.planned} `, bar];
}

function viewOf(data, address) {
  const [name, value] = address.slice(1).split("=").map(decodeURIComponent);
  if (name === "study") {
    const study = data.studies.find((one) => one.name === value);
    return study ? [study.title, studyView(data, study)] : lost(`No study is called ${value} here.`);
  }
  if (name === "runs") return ["Runs", runsView(data)];
  if (name === "run") {
    const run = data.runs.find((one) => one.id === value);
    return run ? [`${run.label} on ${task(run.env)}`, runView(data, run)] : lost(`No run has the id ${value} here.`);
  }
  return ["Overview", overview(data)];
}

function lost(text) {
  return ["Not here", [h("h1", { tabindex: -1 }, "Not here"), h("p", {}, text), h("p", {}, h("a", { href: "#overview" }, "Overview"))]];
}

function route(data, move) {
  const [title, children] = viewOf(data, location.hash || "#overview");
  const main = document.getElementById("content");
  main.replaceChildren(...children.flat().filter(known));
  document.title = `${title} - teb report`;
  const page = (location.hash || "#overview").slice(1).split("=")[0];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${page}` || (page === "run" && link.hash === "#runs")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.getElementById("jump").value = page === "study" ? decodeURIComponent(location.hash.split("=")[1]) : "";
  if (move) {
    main.querySelector("h1").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

async function start() {
  const source = document.getElementById("data");
  const data = await unpack(source.textContent);
  source.remove();
  // The address is taken, so this link moves the focus alone.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("content").focus();
  });
  const jump = document.getElementById("jump");
  jump.append(...data.studies.map((study) => h("option", { value: study.name }, study.name)));
  jump.addEventListener("change", () => { if (jump.value) location.hash = `study=${encodeURIComponent(jump.value)}`; });
  addEventListener("hashchange", () => route(data, true));
  // Canvases hold the colours that they were drawn in.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => route(data, false));
  route(data, false);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  document.getElementById("content").replaceChildren(h("h1", {}, "This page could not be drawn"),
    h("p", {}, `${error}. It needs a browser from 2023 or later.`));
  throw error;
});
