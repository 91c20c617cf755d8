/** The page of the fleet: the workers, their caches, and their order for a request. */

import { asksForKey, start } from "./access.js";
import * as api from "./api.js";
import { announce, tableRow } from "./dom.js";
import { EXAMPLE } from "./example.js";
import { add, chartsOf, compact, counts, every, rate, share, shares } from "./live.js";
import { total } from "./metrics.js";

const WORKER = [
  "worker", "engine", "state", "requests", "load in tokens", "last prompt", "cached",
  "blocks × tokens", "events", "lag", "gaps",
];
const RANKED = ["worker", "cached tokens", "load in tokens", "score"];

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });

async function begin() {
  await showWorkers("");
  const chartOf = chartsOf(byId("last-minute"));
  const charts = { hits: chartOf("hits", shares), decisions: chartOf("decisions", counts), events: chartOf("events", counts) };
  const samples = [];
  every(() => update(charts, samples), (error) => {
    samples.splice(0); // no response: start over
    announce(error.message);
  });
  for (const id of ["fleet", "last-minute", "request"]) {
    byId(id).hidden = false;
  }
}

async function update({ hits, decisions, events }, samples) {
  const text = await api.metrics();
  const workers = await showWorkers(text);
  add(samples, sample(workers, text));
  hits.draw(share(samples), 1);
  decisions.draw(rate(samples, "decisions"));
  events.draw(rate(samples, "events"));
}

/** Draw the workers, with figures of the metrics, and return them. */
async function showWorkers(text) {
  let answer;
  try {
    answer = await api.workers();
  } catch (error) {
    if (error.status === 404) {
      error.message = "This service has no workers. Start `mmhash gateway --worker URL,events=…,engine=…` for a fleet.";
    }
    throw error;
  }
  announce("");
  byId("policy").textContent = `Policy: ${answer.policy}.`;
  byId("workers").replaceChildren(
    ...answer.workers.map((worker) => workerRow(worker, text)),
  );
  return answer.workers;
}

function stateOf({ healthy, mismatched, names, engine, connected }) {
  if (!healthy) {
    return "not healthy";
  }
  if (mismatched) {
    return "other models";
  }
  if (names === "wrong") {
    return "wrong block names";
  }
  return engine && !connected ? "no KV events" : "healthy";
}

/** Return the share of a worker's prompt tokens that it had cached. */
function cachedOf({ url }, text) {
  const of = `worker="${url}"`;
  const tokens = total(text, "mmhash_gateway_tokens_total", of);
  const misses = total(text, "mmhash_gateway_tokens_total", `cached="no",${of}`);
  return tokens ? shares.format(1 - misses / tokens) : "–";
}

const blocksOf = ({ blocks, block_size }) => number(blocks) + (blocks ? ` × ${block_size}` : "");

function workerRow(worker, text) {
  const state = stateOf(worker);
  const values = [
    worker.url, worker.engine ?? "not named", state, number(worker.requests), number(worker.load),
    worker.last_how ?? "–", cachedOf(worker, text), blocksOf(worker), compact.format(worker.events),
    `${number(1000 * worker.lag_s)} ms`, number(worker.gaps),
  ];
  const row = tableRow(WORKER, values, { className: state === "healthy" ? "same" : "different" });
  row.children[2].className = "word";
  return row;
}

function sample(workers, text) {
  return {
    time: performance.now(),
    decisions: total(text, "mmhash_gateway_decisions_total"),
    events: workers.reduce((sum, { events }) => sum + events, 0),
    lookups: total(text, "mmhash_gateway_tokens_total"),
    misses: total(text, "mmhash_gateway_tokens_total", 'cached="no"'),
  };
}

byId("chat").value = EXAMPLE;
byId("request").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("problem").textContent = "";
  const table = byId("ranking").parentElement;
  table.hidden = true;
  byId("size").textContent = "";
  try {
    const { plan, workers } = await api.route(byId("chat").value);
    byId("size").textContent = plan
      ? `${number(plan.tokens)} tokens in ${number(plan.blocks)} whole blocks. The first worker gets the request.`
      : "This request cannot be planned: the workers are ranked by load only.";
    byId("ranking").replaceChildren(
      ...workers.map(({ url, matched_tokens, load, score }) =>
        tableRow(RANKED, [url, number(matched_tokens), number(load), number(score)]),
      ),
    );
    table.hidden = false;
  } catch (error) {
    if (!asksForKey(error)) {
      byId("problem").textContent = error.message;
    }
  }
});

start(begin);
