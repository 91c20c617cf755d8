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

/** Return the engines that the service knows. */
export async function engines() {
  const response = await request("info");
  return Object.keys((await response.json()).engines);
}

/** Return all metrics in Prometheus's text format. */
export async function metrics() {
  const response = await request("metrics");
  return response.text();
}

/** Hash the file by its bytes. */
export function hashBytes(file) {
  return hash(file, "of=bytes");
}

/** Hash the image by its pixels; the result contains the request fields of each engine. */
export function hashPixels(file, engines) {
  return hash(file, `of=pixels&engines=${engines.join(",")}`);
}

async function hash(file, query) {
  const headers = { "Content-Type": file.type || "application/octet-stream" };
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
