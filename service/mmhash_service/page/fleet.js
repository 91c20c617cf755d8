/** The page of the fleet: the workers, their caches, and their order for a request. */

import { asksForKey, start } from "./access.js";
import * as api from "./api.js";
import { announce, tableRow } from "./dom.js";
import { EXAMPLE } from "./example.js";
import { add, chartsOf, counts, every, rate, share, shares } from "./live.js";
import { total } from "./metrics.js";

const WORKER = ["worker", "engine", "state", "requests", "load in tokens", "blocks", "events", "gaps"];
const RANKED = ["worker", "cached tokens", "load in tokens", "score"];

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });

async function begin() {
  await showWorkers();
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
  const workers = await showWorkers();
  add(samples, await sample(workers));
  hits.draw(share(samples), 1);
  decisions.draw(rate(samples, "decisions"));
  events.draw(rate(samples, "events"));
}

/** Draw the workers, and return them. */
async function showWorkers() {
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
  byId("workers").replaceChildren(...answer.workers.map(workerRow));
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

function workerRow(worker) {
  const state = stateOf(worker);
  const values = [worker.url, worker.engine ?? "not named", state];
  for (const name of ["requests", "load", "blocks", "events", "gaps"]) {
    values.push(number(worker[name]));
  }
  const row = tableRow(WORKER, values, { className: state === "healthy" ? "same" : "different" });
  row.children[2].className = "word";
  return row;
}

async function sample(workers) {
  const text = await api.metrics();
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
