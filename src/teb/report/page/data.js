// The data of the page, and how numbers are written.

let shares = {}; // decimals of series between 0 and 1
let seriesNames = {}; // what series are called

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  data.maps = new Uint8Array(buffer, 4 + length);
  shares = data.shares;
  seriesNames = data.names;
  return data;
}

function known(value) {
  return value !== null && value !== undefined;
}

function number(value, series) {
  if (!known(value)) return "missing";
  if (series in shares) return value.toFixed(shares[series]);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e7) ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

function steps(value) {
  const [size, unit] = value >= 999950 ? [1e6, "M"] : value >= 1000 ? [1e3, "K"] : [1, ""];
  return String(Number((value / size).toFixed(1))) + unit;
}

function whole(value) {
  return value.toLocaleString("en");
}

function interval(low, high, series) {
  return known(low) ? `[${number(low, series)}, ${number(high, series)}]` : "no interval";
}

function duration(seconds) {
  if (!known(seconds)) return "missing";
  const minutes = Math.floor(Math.round(seconds) / 60);
  const two = (value) => String(value).padStart(2, "0");
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(Math.round(seconds) % 60)}`;
}

function plain(series) {
  return seriesNames[series] || series.replaceAll("_", " ");
}

function task(env) {
  return env.slice(env.lastIndexOf("/") + 1);
}

function counted(count, what) {
  return `${whole(count)} ${what}${count === 1 ? "" : "s"}`;
}
