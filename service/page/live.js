/** The charts of what the service does, from its metrics, second by second. */

import { metrics } from "./api.js";
import { Chart } from "./chart.js";
import { total } from "./metrics.js";

const EVERY_MS = 1000;
const KEPT = 60;

const rates = { maximumFractionDigits: 1 };
const counts = new Intl.NumberFormat("en", rates);
const compact = new Intl.NumberFormat("en", { ...rates, notation: "compact" });
const shares = new Intl.NumberFormat("en", { style: "percent" });

/** Draw the charts anew every second in which somebody may see them. */
export function watch(section) {
  const chartOf = (id, spell) =>
    new Chart(section.querySelector(`#${id}`), KEPT, (value) => spell.format(value));
  const calls = chartOf("requests", counts);
  const bytes = chartOf("bytes", compact);
  const hits = chartOf("hits", shares);
  const samples = [];

  async function look() {
    samples.push(await sample());
    samples.splice(0, samples.length - KEPT - 1);
    calls.draw(rate(samples, "calls"));
    bytes.draw(rate(samples, "bytes"));
    hits.draw(share(samples), 1);
  }

  async function again() {
    if (!document.hidden) {
      await look().catch(() => samples.splice(0)); // no answer: begin anew with the next
    }
    setTimeout(again, EVERY_MS);
  }
  section.hidden = false;
  again();
}

async function sample() {
  const text = await metrics();
  return {
    at: performance.now(),
    calls: total(text, "mmhash_requests_total"),
    bytes: total(text, "mmhash_body_bytes_total"),
    asked: total(text, "mmhash_memo_lookups_total"),
    missed: total(text, "mmhash_memo_lookups_total", 'source="miss"'),
  };
}

/** How fast that counter grew before each sample but the first; a server that began anew has none. */
function rate(samples, name) {
  return samples.slice(1).map((now, at) => {
    const before = samples[at];
    return Math.max(0, (1000 * (now[name] - before[name])) / (now.at - before.at));
  });
}

/** What part of all that the memo was asked since the first sample it knew, at each later one. */
function share(samples) {
  const [first, ...rest] = samples;
  return rest.map((now) => {
    const asked = now.asked - first.asked;
    return asked > 0 ? 1 - (now.missed - first.missed) / asked : null;
  });
}
