/** The requests of the page to the service, with the API key. */

const KEY = "mmhash-api-key";

/** The reason of a failed request: the service's problem (RFC 9457), if there is one. */
export class Problem extends Error {
  constructor(status, title, detail) {
    super(`${title}. ${detail}`);
    this.status = status;
  }
}

/** Send the key with every request until the tab is closed. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** Return true if there is a key to send. */
export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

/** Return the names of the models, and the newest release of each engine, as `vllm@0.33.0`. */
export async function info() {
  const response = await request("info");
  const { models, engines } = await response.json();
  const newest = ([name, releases]) => `${name}@${releases.at(-1).split(" to ").at(-1)}`;
  return { models, engines: Object.entries(engines).map(newest) };
}

/** Return the plan of a request, given as JSON text. */
export function plan(text, model, engine, blockSize) {
  const query = new URLSearchParams({ model, engine, block_size: blockSize, request: true });
  return post(`plan?${query}`, text);
}

/** Return the order of the workers for a request, given as JSON text. */
export function route(text) {
  return post("route", text);
}

/** Return the state of the workers. */
export async function workers() {
  const response = await request("workers");
  return response.json();
}

/** Return all metrics in Prometheus's text format. */
export async function metrics() {
  const response = await request("metrics");
  return response.text();
}

/** Hash an image by its `bytes` or `pixels`; the result contains the request fields of each engine. */
export function hashImage(file, of, engines) {
  return hash(file, `of=${of}&engines=${engines.join(",")}`);
}

/** Return the command that sends the same request as `hashImage` by pixels. */
export function pixelsCommand(file, engines) {
  const url = new URL(`hash?of=pixels&engines=${engines.join(",")}`, document.baseURI);
  const lines = [
    "curl -s",
    hasKey() ? '-H "Authorization: Bearer $MMHASH_API_KEY"' : "",
    `-H ${quote(`Content-Type: ${typeOf(file)}`)}`,
    `--data-binary ${quote(`@./${file.name}`)}`,
    quote(url.href),
  ];
  return lines.filter(Boolean).join(" ");
}

/** Return text as one word of a shell. */
function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function typeOf(file) {
  return file.type || "application/octet-stream";
}

async function post(path, text) {
  const headers = { "Content-Type": "application/json" };
  const response = await request(path, { method: "POST", headers, body: text });
  return JSON.parse(await response.text(), parseInteger);
}

async function hash(file, query) {
  const headers = { "Content-Type": typeOf(file) };
  const response = await request(`hash?${query}`, { method: "POST", headers, body: file });
  const { items, elapsed_ms } = JSON.parse(await response.text(), parseInteger);
  return { ...items[0], elapsed_ms };
}

/** Parse integers that a JavaScript number cannot hold, such as SGLang's pad values, as BigInt. */
function parseInteger(_, value, { source }) {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? BigInt(source) : value;
}

/** Return a value as JSON text, with its BigInts as they came. */
export function toJson(value) {
  return JSON.stringify(value, (_, one) => (typeof one === "bigint" ? JSON.rawJSON(String(one)) : one), 2);
}

async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = sessionStorage.getItem(KEY);
  if (key !== null) {
    headers.set("Authorization", `Bearer ${utf8(key)}`);
  }
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Problem(0, "No response", "The service cannot be reached, or the file cannot be read.");
  }
  if (!response.ok) {
    throw await problemOf(response);
  }
  return response;
}

/** Return the text as a header takes it: one code point below 256 per byte. */
function utf8(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

async function problemOf(response) {
  if (response.headers.get("Content-Type") === "application/problem+json") {
    const { title, detail } = await response.json();
    return new Problem(response.status, title, detail);
  }
  return new Problem(response.status, `Status ${response.status}`, "The response is not from this service.");
}
