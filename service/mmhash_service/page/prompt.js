/** The page of a prompt's plan: its tokens, items and blocks, in colour. */

import { asksForKey, start } from "./access.js";
import * as api from "./api.js";
import { copyTextButton } from "./copy.js";
import { announce, element } from "./dom.js";
import { EXAMPLE } from "./example.js";

// More elements only make the page slow.
const MAX_BLOCKS = 512;
const COLOURS = 6;
const PLANNED = ["vllm", "sglang"];

const byId = (id) => document.getElementById(id);

async function begin() {
  const { models, engines } = await api.info();
  const planned = engines.filter((engine) => PLANNED.includes(engine.split("@")[0]));
  planned.sort((one, other) => PLANNED.indexOf(one.split("@")[0]) - PLANNED.indexOf(other.split("@")[0]));
  byId("model").replaceChildren(...models.map((name) => new Option(name)));
  byId("engine").replaceChildren(...planned.map((name) => new Option(name)));
  byId("send").disabled = models.length === 0;
  if (models.length === 0) {
    announce("This service has no model to plan for. Name one at the start: mmhash serve --set models='{\"NAME\": \"DIRECTORY\"}'.");
  }
}

byId("chat").value = EXAMPLE;
byId("request").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("problem").textContent = "";
  byId("plan").hidden = true;
  const size = Number(byId("block-size").value);
  try {
    show(await api.plan(byId("chat").value, byId("model").value, byId("engine").value, size), size);
  } catch (error) {
    if (!asksForKey(error)) {
      byId("problem").textContent = error.message;
    }
  }
});

function show(plan, size) {
  const { token_ids: ids, items, blocks } = plan;
  const text = ids.length - items.reduce((sum, item) => sum + item.end - item.start, 0);
  byId("summary").textContent =
    `${ids.length} tokens: ${text} of text, ${ids.length - text} of ${items.length === 1 ? "1 item" : `${items.length} items`}. ` +
    `${blocks.length} whole blocks of ${size} tokens.`;
  byId("legend").replaceChildren(legend("text", "text"), ...items.map(legendOf));
  const cut = Math.min(Math.ceil(ids.length / size), MAX_BLOCKS);
  byId("blocks").replaceChildren(
    ...Array.from({ length: cut }, (_, index) => block(plan, index, size)),
  );
  byId("rest").textContent = cut * size < ids.length ? `Only the first ${cut} blocks are drawn.` : "";
  byId("copies").replaceChildren(
    copyTextButton("Copy the plan as JSON", "the plan as JSON", () => api.toJson(plan)),
    copyTextButton("Copy the request with hashes", "the request with hashes", () => api.toJson(plan.request)),
  );
  byId("plan").hidden = false;
  announce("Planned.");
}

function legendOf(item, index) {
  const place = `tokens ${item.start} to ${item.end - 1}`;
  const text = `${item.modality} ${index + 1}: ${item.width} × ${item.height}, ${place}, key ${item.key.slice(0, 12)}…`;
  return legend(colourOf(index), text);
}

function legend(colour, text) {
  return element("li", {}, element("span", { className: `swatch ${colour}` }), text);
}

function colourOf(index) {
  return `item-${index % COLOURS}`;
}

/** Create a block: a bar of its tokens, by item, and its key. */
function block({ token_ids: ids, items, blocks }, number, size) {
  const end = Math.min((number + 1) * size, ids.length);
  const runs = runsOf(items, number * size, end);
  const bar = element("span", { className: "bar" }, ...runs.map((run) => part(run, ids)));
  bar.style.width = `${(100 * (end - number * size)) / size}%`;
  const words = runs.map(({ start, end, index }) => `${end - start} ${index === null ? "text" : `item ${index + 1}`}`);
  const key = blocks[number] ? `${blocks[number].slice(0, 12)}…` : "not whole: no key";
  return element(
    "li",
    {},
    element("span", { className: "track" }, bar),
    element("span", { className: "words" }, `${number}: ${words.join(", ")}`),
    element("code", {}, key),
  );
}

function part({ start, end, index }, ids) {
  const name = index === null ? "text" : colourOf(index);
  const made = element("span", { className: name, title: `tokens ${start} to ${end - 1}: ${ids.slice(start, end).join(" ")}` });
  made.style.flexGrow = end - start;
  return made;
}

/** Return the runs of tokens of one item, or of text (index null), between two tokens. */
function runsOf(items, start, end) {
  const runs = [];
  for (let at = start; at < end; at = runs.at(-1).end) {
    const index = items.findIndex((item) => item.start <= at && at < item.end);
    const next = Math.min(...items.map((item) => item.start).filter((place) => place > at), end);
    runs.push(
      index === -1
        ? { start: at, end: next, index: null }
        : { start: at, end: Math.min(items[index].end, end), index },
    );
  }
  return runs;
}

start(begin);
