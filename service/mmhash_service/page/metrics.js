/** A minimal parser of Prometheus's text format. */

const SAMPLE = /^(\w+)(\{.*\})? (\S+)$/;

/** Return the sum of all samples with that name whose labels contain `label`. */
export function total(text, name, label = "") {
  return text
    .split("\n")
    .map((line) => SAMPLE.exec(line))
    .filter((match) => match?.[1] === name && (match[2] ?? "").includes(label))
    .reduce((sum, match) => sum + Number(match[3]), 0);
}
