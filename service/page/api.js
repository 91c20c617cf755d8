/** The calls of the service that the page makes, and the API key that goes with them. */

const KEY = "mmhash-api-key";

/** Why a call failed: the service's own words (RFC 9457), where there are any. */
export class Problem extends Error {
  constructor(status, title, detail) {
    super(`${title}. ${detail}`);
    this.status = status;
  }
}

/** Send that key with every call, until the tab is closed. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** The engines that the service knows. */
export async function engines() {
  const answer = await call("info");
  return Object.keys((await answer.json()).engines);
}

/** All metrics, as Prometheus reads them. */
export async function metrics() {
  const answer = await call("metrics");
  return answer.text();
}

/** What the file is by its bytes. */
export function hashBytes(file) {
  return hash(file, "of=bytes");
}

/** What the image is by its pixels, with its key as each of the engines spells it. */
export function hashPixels(file, engines) {
  return hash(file, `of=pixels&engines=${engines.join(",")}`);
}

async function hash(file, query) {
  const headers = { "Content-Type": file.type || "application/octet-stream" };
  const answer = await call(`hash?${query}`, { method: "POST", headers, body: file });
  const { items, elapsed_ms } = JSON.parse(await answer.text(), whole);
  return { ...items[0], elapsed_ms };
}

/** SGLang's pad values are longer than a number of JavaScript. */
function whole(_, value, { source }) {
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? BigInt(source) : value;
}

async function call(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = sessionStorage.getItem(KEY);
  if (key !== null) {
    headers.set("Authorization", `Bearer ${utf8(key)}`);
  }
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Problem(0, "No answer", "The service cannot be reached, or the file not be read.");
  }
  if (!answer.ok) {
    throw await problemOf(answer);
  }
  return answer;
}

/** A header takes code points below 256 alone, each of them one byte. */
function utf8(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

async function problemOf(answer) {
  if (answer.headers.get("Content-Type") === "application/problem+json") {
    const { title, detail } = await answer.json();
    return new Problem(answer.status, title, detail);
  }
  return new Problem(answer.status, `Status ${answer.status}`, "It is not this service's answer.");
}
