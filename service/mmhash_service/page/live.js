/** Live charts of the service's metrics. */

import { metrics } from "./api.js";
import { Chart } from "./chart.js";
import { total } from "./metrics.js";

const INTERVAL_MS = 1000;
const MAX_SAMPLES = 60;

const rates = { maximumFractionDigits: 1 };
export const counts = new Intl.NumberFormat("en", rates);
export const compact = new Intl.NumberFormat("en", { ...rates, notation: "compact" });
export const shares = new Intl.NumberFormat("en", { style: "percent" });

/** Return a function that creates the chart of a figure, with values in this format. */
export function chartsOf(section) {
  return (id, number) =>
    new Chart(section.querySelector(`#${id}`), MAX_SAMPLES, (value) => number.format(value));
}

/** Update the charts every second while the page is visible. */
export function watch(section) {
  const chartOf = chartsOf(section);
  const requests = chartOf("requests", counts);
  const bytes = chartOf("bytes", compact);
  const hits = chartOf("hits", shares);
  const samples = [];

  every(async () => {
    add(samples, await sample());
    requests.draw(rate(samples, "requests"));
    bytes.draw(rate(samples, "bytes"));
    hits.draw(share(samples), 1);
  }, () => samples.splice(0)); // no response: start over
  section.hidden = false;
}

/** Call a function every second while the page is visible; if it fails, call the other one. */
export async function every(update, onFailure) {
  if (!document.hidden) {
    await update().catch(onFailure);
  }
  setTimeout(() => every(update, onFailure), INTERVAL_MS);
}

/** Append a sample, and drop those that the charts no longer show. */
export function add(samples, sample) {
  samples.push(sample);
  samples.splice(0, samples.length - MAX_SAMPLES - 1);
}

async function sample() {
  const text = await metrics();
  return {
    time: performance.now(),
    requests: total(text, "mmhash_requests_total"),
    bytes: total(text, "mmhash_body_bytes_total"),
    lookups: total(text, "mmhash_memo_lookups_total"),
    misses: total(text, "mmhash_memo_lookups_total", 'source="miss"'),
  };
}

/** Return the growth per second of a counter between samples; 0 after a restart of the server. */
export function rate(samples, name) {
  return samples.slice(1).map((now, index) => {
    const before = samples[index];
    return Math.max(0, (1000 * (now[name] - before[name])) / (now.time - before.time));
  });
}

/** Return the hit ratio since the first sample, at each later sample. */
export function share(samples) {
  const [first, ...rest] = samples;
  return rest.map((now) => {
    const lookups = now.lookups - first.lookups;
    return lookups > 0 ? 1 - (now.misses - first.misses) / lookups : null;
  });
}
