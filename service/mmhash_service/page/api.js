/** The page's requests to the service, with the API key. */

const KEY = "mmhash-api-key";

/** Why a request failed: the service's problem (RFC 9457), if it sent one. */
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

/** Return the newest release of each engine, as `vllm@0.33.0`. */
export async function engines() {
  const response = await request("info");
  const { engines } = await response.json();
  return Object.entries(engines).map(([name, releases]) => `${name}@${releases.at(-1).split(" to ").at(-1)}`);
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

/** Hash an image by its `bytes` or `pixels`. The result has the fields that each engine takes. */
export async function hashImage(file, of, engines) {
  const headers = { "Content-Type": file.type || "application/octet-stream" };
  const query = `of=${of}&engines=${engines.join(",")}`;
  const response = await request(`hash?${query}`, { method: "POST", headers, body: file });
  const { items, elapsed_ms } = JSON.parse(await response.text(), parseInteger);
  return { ...items[0], elapsed_ms };
}

/** Parse integers that a JavaScript number cannot hold, such as SGLang's pad values, as BigInt. */
function parseInteger(_, value, { source }) {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? BigInt(source) : value;
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

/** Return a string with one character for each UTF-8 byte, because headers hold only bytes. */
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
