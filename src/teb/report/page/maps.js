// Mazes whose bins are coloured by the time of their first visit, and what plays them over training.

const SCALE = 4; // pixels of the canvas per bin
const SECONDS = 7; // of a run played from start to end

function insideOf(maze) {
  if (maze.mask) return maze.mask;
  const [nx, ny] = maze.shape;
  const cells = new Set(maze.cells.map((cell) => cell.join(",")));
  maze.mask = new Uint8Array(nx * ny);
  for (let i = 0; i < nx; i += 1) {
    const column = Math.round(maze.bounds[0][0] + (i + 0.5) * maze.bin);
    for (let j = 0; j < ny; j += 1) {
      const row = Math.round(maze.bounds[1][0] + (j + 0.5) * maze.bin);
      maze.mask[i * ny + j] = cells.has(`${column},${row}`);
    }
  }
  return maze.mask;
}

function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function pageColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// `last` is the step at which the colours end; `draw(step)` shows what was visited by then and returns its share.
function coverageMap(data, run, title, last) {
  const maze = data.mazes[run.map.maze];
  const [nx, ny] = maze.shape;
  const levels = data.maps.subarray(run.map.at, run.map.at + nx * ny);
  const inside = insideOf(maze);
  const until = new Uint32Array(data.levels + 1);
  levels.forEach((level, bin) => { if (inside[bin] && level !== data.unvisited) until[level] += 1; });
  for (let level = 1; level <= data.levels; level += 1) until[level] += until[level - 1];

  const canvas = h("canvas", { width: nx * SCALE, height: ny * SCALE, role: "img" });
  const said = h("span", { class: "share" });
  const element = h("figure", { class: "map" }, canvas, h("figcaption", {}, title, " ", said));
  const small = h("canvas", { width: nx, height: ny });
  const pen = canvas.getContext("2d");
  const pixels = small.getContext("2d").createImageData(nx, ny);

  function draw(step) {
    const now = Math.min(data.levels, Math.floor((step / run.map.steps) * data.levels + 1e-9));
    const ground = rgb(pageColour("--ground"));
    const colours = Array.from({ length: data.levels + 1 }, (_, level) => {
      const time = ((level / data.levels) * run.map.steps) / last;
      return rgb(data.colours[Math.min(data.levels, Math.round(time * data.levels))]);
    });
    for (let i = 0; i < nx; i += 1) {
      for (let j = 0; j < ny; j += 1) {
        const bin = i * ny + j;
        const at = 4 * ((ny - 1 - j) * nx + i);
        const [red, green, blue] = levels[bin] <= now ? colours[levels[bin]] : ground;
        pixels.data[at] = red;
        pixels.data[at + 1] = green;
        pixels.data[at + 2] = blue;
        pixels.data[at + 3] = inside[bin] ? 255 : 0;
      }
    }
    small.getContext("2d").putImageData(pixels, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, canvas.width, canvas.height);
    walls();
    const share = until[now] / maze.inside;
    said.textContent = share.toFixed(2);
    canvas.setAttribute("aria-label", `${maze.maze}: ${(100 * share).toFixed(0)} % visited after ${whole(Math.round(step))} steps`);
    return share;
  }

  function walls() {
    const [[left, right], [bottom, top]] = maze.bounds;
    const place = ([a, b]) => [
      2 + ((a - left) / (right - left)) * (canvas.width - 4),
      2 + ((top - b) / (top - bottom)) * (canvas.height - 4),
    ];
    pen.strokeStyle = pageColour("--ink");
    pen.lineWidth = 4;
    pen.lineCap = "square";
    pen.beginPath();
    for (const [from, to] of maze.walls) {
      pen.moveTo(...place(from));
      pen.lineTo(...place(to));
    }
    pen.stroke();
  }

  return { element, draw };
}

// Slider and button over some maps, all at the same step.
function player(data, maps, last) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const slider = h("input", { type: "range", min: 0, max: data.levels, value: data.levels, id: "time", input: show });
  const button = h("button", { type: "button", class: "play", click: () => (timer === null ? play() : pause()) }, "Play");
  const said = h("output", { for: "time" });
  let timer = null;

  function show() {
    const step = (slider.value / data.levels) * last;
    maps.forEach((map) => map.draw(step));
    said.textContent = `${steps(step)} of ${steps(last)} steps`;
    slider.setAttribute("aria-valuetext", said.textContent);
  }

  function play() {
    if (Number(slider.value) >= data.levels) slider.value = 0;
    button.textContent = "Pause";
    // Where motion is unwelcome, a few still pictures take the place of a film.
    const stride = calm.matches ? data.levels / 10 : 1;
    timer = setInterval(() => {
      if (!slider.isConnected) return pause();
      slider.value = Number(slider.value) + stride;
      show();
      if (Number(slider.value) >= data.levels) pause();
    }, (1000 * SECONDS * stride) / data.levels);
    show();
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  }

  const legend = h("div", { class: "legend" }, h("span", {}, "first visit: start"), ramp(data), h("span", {}, steps(last)),
    h("span", { class: "never" }), h("span", {}, "not visited"));
  show();
  const label = h("label", { for: "time" }, "Training time");
  return { element: h("div", {}, h("div", { class: "player" }, button, label, slider, said), legend), pause };
}

function ramp(data) {
  const stops = data.colours.filter((_, place) => place % 20 === 0).join(", ");
  return h("span", { class: "ramp", "aria-hidden": "true", "--ramp": `linear-gradient(to right, ${stops})` });
}
