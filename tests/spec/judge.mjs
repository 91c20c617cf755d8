/**
 * Judges mmhash.mjs by vector files and by the examples of docs/spec.md: `node judge.mjs FILE…`.
 * A line a file on stdout, a line a failure on stderr; 1 if any case fails.
 */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { check, digests, key, optionsKey, preimage, recipeBytes, recipeKey, sign } from "./mmhash.mjs";

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const unhex = (text) => Buffer.from(text, "hex");
/** The content of every vector: byte i is i mod 251. */
const counting = (nbytes) => Uint8Array.from({ length: nbytes }, (_, i) => i % 251);

/** Each judge yields what was asked, what came out, and what should have. */
const judges = {
  "digest.json": judgeDigests, "key.json": judgeKeys, "recipe.json": judgeRecipes, "spec.md": judgeExamples,
};

function* judgeDigests(text) {
  for (const { nbytes, why, ...wanted } of JSON.parse(text).cases) {
    for (const [algorithm, digest] of Object.entries(wanted)) {
      yield [`${algorithm} of ${nbytes} bytes (${why})`, hex(digests[algorithm](counting(nbytes))), digest];
    }
  }
}

function* judgeKeys(text) {
  const { cases, tenant } = JSON.parse(text);
  for (const { item: described, why, ...wanted } of cases) {
    const item = itemOf(described);
    for (const [name, expected] of Object.entries(wanted)) {
      const [algorithm, withTenant] = name.split("_");
      yield [`${name}: ${why}`, hex(key(item, algorithm, withTenant ? unhex(tenant) : null)), expected];
    }
  }
}

function* judgeRecipes(text) {
  const { cases, tenant } = JSON.parse(text);
  const source = { kind: "bytes", content: counting(12) };
  for (const { recipe: given, why, bytes, key: alone, key_tenant: ofTenant } of cases) {
    const recipe = recipeBytes({ ...given, indices: given.indices?.map(BigInt) });
    yield [`recipe: ${why}`, hex(recipe), bytes];
    yield [`key: ${why}`, hex(recipeKey(key(source), recipe)), alone];
    yield [`key_tenant: ${why}`, hex(recipeKey(key(source, "blake3", unhex(tenant)), recipe)), ofTenant];
  }
}

function itemOf({ kind, items, frames, nbytes, ...rest }) {
  if (kind === "list") return { kind, parts: items.map(itemOf) };
  if (kind === "image") return { kind, frames: (frames ?? [{ nbytes, ...rest }]).map(frameOf) };
  return { kind, content: counting(nbytes), ...rest };
}

function frameOf({ mode, size: [width, height], nbytes, palette_rgba = "", transparency }) {
  if (transparency?.table) transparency = { table: unhex(transparency.table) };
  return { mode, width, height, pixels: counting(nbytes), palette: unhex(palette_rgba), transparency };
}

/** Sections 7, 9, 10 and 11: their inputs stand in prose, what comes of them in the rows of their tables. */
function* judgeExamples(text) {
  const rows = Object.fromEntries([...text.matchAll(/^\| ([^|]+) \| `(\S+)` \|$/gm)].map((row) => row.slice(1)));
  const tensor = { kind: "tensor", dtype: "uint8", shape: [3, 4], content: counting(12) };
  const keyBytes = Buffer.from(key(tensor));
  yield ["section 7, digest", hex(digests.blake3(tensor.content)), rows["digest (`blake3`)"]];
  yield ["section 7, preimage", hex(preimage(tensor)), rows.preimage];
  yield ["section 7, key", hex(keyBytes), rows.key];

  const [secret, other] = [counting(32), counting(33).subarray(1)];
  const audience = { engine: "sglang", tenant: "acme" };
  const tag = sign(keyBytes, secret, { ...audience, expires: 1800000000 });
  yield ["section 9, signed head", hex(Buffer.from(tag, "base64url").subarray(0, 44)), rows["signed head"]];
  yield ["section 9, MAC", hex(Buffer.from(tag, "base64url").subarray(44)), rows.MAC];
  yield ["section 9, tag", tag, rows.tag];

  const call = { ...audience, now: 1799999999 };
  const opened = (...given) => hex(check(...given) ?? []);
  yield ["section 9, in the last second", opened(rows.tag, [other, secret], call), rows.key];
  yield ["section 9, expired", opened(rows.tag, [secret], { ...call, now: 1800000000 }), ""];
  yield ["section 9, another engine", opened(rows.tag, [secret], { ...call, engine: "vllm" }), ""];
  yield ["section 9, another tenant", opened(rows.tag, [secret], { ...call, tenant: "" }), ""];
  yield ["section 9, another secret", opened(rows.tag, [other], call), ""];
  yield ["section 9, padded", opened(`${rows.tag}=`, [secret], call), ""];
  for (let at = 0; at < tag.length; at += 1) {
    const changed = tag.slice(0, at) + (tag[at] === "A" ? "B" : "A") + tag.slice(at + 1);
    yield [`section 9, character ${at} changed`, opened(changed, [secret], call), ""];
  }

  const [options] = text.match(/\{"media_io_kwargs".*?\}\}\}?(?=`)/);
  const oriented = options.replace("{", '{"exif_orientation":6,');
  yield ["section 10, options", hex(optionsKey(keyBytes, options)), rows["with options"]];
  const named = hex(optionsKey(keyBytes, oriented));
  yield ["section 10, orientation", named, rows["with options and orientation"]];

  const recipe = recipeBytes({ indices: [0n, 2n, 4n, 6n, 7n, 8n, 20n] });
  const source = key({ kind: "bytes", content: counting(12) });
  yield ["section 11, recipe", hex(recipe), rows.recipe];
  yield ["section 11, recipe key", hex(recipeKey(source, recipe)), rows["recipe key"]];
}

const paths = process.argv.slice(2);
if (paths.length === 0) throw new Error("name the files to judge by");
for (const path of paths) {
  let [passed, failed] = [0, 0];
  for (const [what, got, wanted] of judges[basename(path)](readFileSync(path, "utf8"))) {
    if (got === wanted) {
      passed += 1;
    } else {
      failed += 1;
      console.error(`${basename(path)}: ${what}: ${got} is not ${wanted}`);
    }
  }
  console.log(`${basename(path)}: ${passed} passed, ${failed} failed`);
  if (failed > 0 || passed === 0) process.exitCode = 1;
}
