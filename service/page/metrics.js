/** Prometheus's text, as far as the charts need it. */

const SAMPLE = /^(\w+)(\{.*\})? (\S+)$/;

/** The sum of all samples of that name whose labels hold `label`. */
export function total(text, name, label = "") {
  return text
    .split("\n")
    .map((line) => SAMPLE.exec(line))
    .filter((found) => found?.[1] === name && (found[2] ?? "").includes(label))
    .reduce((sum, found) => sum + Number(found[3]), 0);
}
