/** The page of the fleet: the workers and their caches. */

import { start } from "./access.js";
import * as api from "./api.js";
import { announce, element } from "./dom.js";

const INTERVAL_MS = 1000;

// A line of Prometheus's text format: name, labels, value.
const SAMPLE = /^(\w+)(\{.*\})? (\S+)$/;

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { maximumFractionDigits: 1, notation: "compact" });
const percent = new Intl.NumberFormat("en", { style: "percent" });

async function begin() {
  await update();
  byId("fleet").hidden = false;
  setTimeout(poll, INTERVAL_MS);
}

/** Update the table every second while the page is visible. */
async function poll() {
  if (!document.hidden) {
    await update().catch((error) => announce(error.message));
  }
  setTimeout(poll, INTERVAL_MS);
}

async function update() {
  const { policy, workers } = await fleet();
  const text = await api.metrics();
  announce("");
  byId("policy").textContent = `Policy: ${policy}.`;
  byId("workers").replaceChildren(...workers.map((worker) => workerRow(worker, text)));
}

async function fleet() {
  try {
    return await api.workers();
  } catch (error) {
    if (error.status === 404) {
      error.message = "This service has no workers. Start “mmhash gateway --worker URL”, and open its page.";
    }
    throw error;
  }
}

function stateOf({ healthy, names, engine, connected }) {
  if (!healthy) {
    return "not healthy";
  }
  if (names === "wrong") {
    return "wrong block names";
  }
  return engine && !connected ? "no KV events" : "healthy";
}

/** Return the share of a worker's prompt tokens that the worker had cached. */
function cachedOf({ url }, text) {
  const tokens = tokensOf(text, `worker="${url}"`);
  const misses = tokensOf(text, `cached="no",worker="${url}"`);
  return tokens ? percent.format(1 - misses / tokens) : "–";
}

/** Return the tokens that the gateway has sent, summed over all samples with this label. */
function tokensOf(text, label) {
  return text
    .split("\n")
    .map((line) => SAMPLE.exec(line))
    .filter((match) => match?.[1] === "mmhash_gateway_tokens_total" && match[2].includes(label))
    .reduce((sum, match) => sum + Number(match[3]), 0);
}

const blocksOf = ({ blocks, block_size }) => number(blocks) + (blocks ? ` × ${block_size}` : "");

function workerRow(worker, text) {
  const state = stateOf(worker);
  const values = [
    worker.url, worker.engine ?? "unknown", state, number(worker.requests), number(worker.load),
    worker.last_how ?? "–", cachedOf(worker, text), blocksOf(worker), compact.format(worker.events),
    `${number(1000 * worker.lag_s)} ms`, number(worker.gaps),
  ];
  const cells = values.map((value, index) => element(index ? "td" : "th", {}, String(value)));
  cells[0].scope = "row";
  cells[2].className = "word";
  return element("tr", { className: state === "healthy" ? "same" : "different" }, ...cells);
}

start(begin);
