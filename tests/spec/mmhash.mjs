/** Spec version 1 in JavaScript, written from the text of docs/spec.md alone: no line comes from the library. */
import { timingSafeEqual } from "node:crypto";
import { blake3 } from "@noble/hashes/blake3.js";
import { createXXHash128 } from "hash-wasm";

const VERSION = "1";
const KEY_CONTEXT = Buffer.from("mmhash 2026-11-21 key v1");
const TENANT_CONTEXT = Buffer.from("mmhash 2026-11-21 tenant v1");
const TAG_CONTEXT = Buffer.from("mmhash 2026-11-21 tag v1");
const OPTIONS_CONTEXT = Buffer.from("mmhash 2026-11-22 options v1");
const RECIPE_CONTEXT = Buffer.from("mmhash 2026-11-22 recipe v1");
const LEAF_BYTES = 262144;
const PALETTE_BYTES = 1024;
const MODES_WITH_PALETTE = ["P", "PA"];
const DEEPEST_LIST = 16;
const NOTHING = Buffer.alloc(0);

// hash-wasm takes a seed as its low and its high 32 bits; "binary" is the canonical form.
const leafHash = await createXXHash128(0, 0);
const rootHash = await createXXHash128(0x726f6f74, 0x6d6d682d);

const ELEMENT_BYTES = {
  bool: 1, uint8: 1, int8: 1, float8_e4m3fn: 1, float8_e4m3fnuz: 1, float8_e5m2: 1, float8_e5m2fnuz: 1,
  float8_e8m0fnu: 1, float4_e2m1fn_x2: 1, uint16: 2, int16: 2, float16: 2, bfloat16: 2, uint32: 4, int32: 4,
  float32: 4, complex32: 4, uint64: 8, int64: 8, float64: 8, complex64: 8, complex128: 16,
};

// Section 1

function u64(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(number));
  return bytes;
}

function field(content) {
  const bytes = Buffer.from(content);
  return Buffer.concat([u64(bytes.length), bytes]);
}

// Sections 2 and 3

export const digests = { blake3: (content) => blake3(content), xxh3 };

function xxh3(content) {
  const message = [];
  for (let start = 0; start < content.length; start += LEAF_BYTES) {
    message.push(xxh3_128(leafHash, content.subarray(start, start + LEAF_BYTES)));
  }
  message.push(u64(content.length));
  return xxh3_128(rootHash, Buffer.concat(message));
}

function xxh3_128(hash, bytes) {
  return hash.init().update(bytes).digest("binary");
}

// Section 4

/**
 * The key of an item, which is one of
 * - `{ kind: "bytes", content }`
 * - `{ kind: "tensor", dtype, shape, content }`
 * - `{ kind: "image", frames: [{ mode, width, height, pixels, palette?, transparency? }] }`, where a palette has
 *   as many colours as the file and a transparency is one of `{ table }`, `{ index }` and `{ color }`
 * - `{ kind: "list", parts }`, each part an item.
 */
export function key(item, algorithm = "blake3", tenant = null, depth = 1) {
  const frame = preimage(item, algorithm, tenant, depth);
  if (tenant === null) return blake3(frame, { context: KEY_CONTEXT });
  return blake3(frame, { key: blake3(tenant, { context: TENANT_CONTEXT }) });
}

export function preimage(item, algorithm = "blake3", tenant = null, depth = 1) {
  const { dtype = "", shape, content, extra = NOTHING } = described(item, algorithm, tenant, depth);
  const digest = digests[algorithm](content);
  const fields = [VERSION, item.kind, dtype, Buffer.concat(shape.map(u64)), algorithm, digest, extra];
  return Buffer.concat(fields.map(field));
}

// Section 5

function described(item, algorithm, tenant, depth) {
  switch (item.kind) {
    case "bytes":
      return { shape: [], content: item.content };
    case "tensor":
      return tensor(item);
    case "image":
      return {
        shape: [item.frames.length],
        content: Buffer.concat(item.frames.map((frame) => frame.pixels)),
        extra: Buffer.concat(item.frames.map(frameDescription)),
      };
    case "list": {
      if (depth > DEEPEST_LIST) throw new RangeError(`a list more than ${DEEPEST_LIST} deep has no key`);
      const keys = item.parts.map((part) => key(part, algorithm, tenant, depth + 1));
      return { shape: [item.parts.length], content: Buffer.concat(keys) };
    }
    default:
      throw new RangeError(`no item is of kind ${item.kind}`);
  }
}

function tensor({ dtype, shape, content }) {
  const bytes = shape.reduce((product, dimension) => product * dimension, ELEMENT_BYTES[dtype]);
  if (content.length !== bytes) throw new RangeError(`${dtype} of ${shape} is not ${content.length} bytes`);
  return { dtype, shape, content };
}

function frameDescription({ mode, width, height, palette = NOTHING, transparency = null }) {
  const colours = MODES_WITH_PALETTE.includes(mode) ? fullPalette(palette) : NOTHING;
  return Buffer.concat([
    field(mode), u64(width), u64(height), field(colours), field(transparencyDescription(transparency)),
  ]);
}

function fullPalette(colours) {
  const full = Buffer.alloc(PALETTE_BYTES, Buffer.from([0, 0, 0, 255]));
  full.set(colours);
  return full;
}

function transparencyDescription(transparency) {
  if (transparency === null) return NOTHING;
  const { table, index, color } = transparency;
  if (table !== undefined) return Buffer.concat([Buffer.from("table"), table]);
  if (index !== undefined) return Buffer.concat([Buffer.from("index"), u64(index)]);
  return Buffer.concat([Buffer.from("color"), ...color.map(u64)]);
}

// Section 9

const TAG_BYTES = 60;
const HEAD_BYTES = 44;

/** The tag of a key (32 bytes) for an engine and a tenant's name; it expires at a second since 1970. */
export function sign(keyBytes, secret, { engine, tenant = "", expires }) {
  const { macKey, id } = tagSecret(secret);
  const head = Buffer.concat([Buffer.of(1), id, u64(expires), keyBytes]);
  return Buffer.concat([head, mac(head, macKey, engine, tenant)]).toString("base64url");
}

/** The key that a tag vouches for at a second since 1970, or null where it vouches for none. */
export function check(tag, secrets, { engine, tenant = "", now }) {
  const bytes = Buffer.from(tag, "base64url");
  if (bytes.length !== TAG_BYTES || bytes.toString("base64url") !== tag || bytes[0] !== 1) return null;
  const head = bytes.subarray(0, HEAD_BYTES);
  const signedBy = (secret) => {
    const { macKey, id } = tagSecret(secret);
    const expected = mac(head, macKey, engine, tenant);
    return id.equals(head.subarray(1, 4)) && timingSafeEqual(expected, bytes.subarray(HEAD_BYTES));
  };
  if (!secrets.some(signedBy) || BigInt(now) >= head.readBigUInt64LE(4)) return null;
  return head.subarray(12);
}

function tagSecret(secret) {
  const derived = Buffer.from(blake3(secret, { context: TAG_CONTEXT, dkLen: 35 }));
  return { macKey: derived.subarray(0, 32), id: derived.subarray(32) };
}

function mac(head, macKey, engine, tenant) {
  const signed = Buffer.concat([head, engine, tenant].map(field));
  return Buffer.from(blake3(signed, { key: macKey })).subarray(0, 16);
}

// Section 10

/** The key under the canonical text of options. */
export function optionsKey(key, options) {
  return blake3(Buffer.concat([key, field(options)]), { context: OPTIONS_CONTEXT });
}

// Section 11

/** The key of a source, by its own key, under the bytes of a recipe. */
export function recipeKey(sourceKey, recipe) {
  return blake3(Buffer.concat([sourceKey, field(recipe)]), { context: RECIPE_CONTEXT });
}

/** The bytes of a recipe: `{ indices, size?, decoder? }` or `{ range, form, decoder? }`; indices are BigInts. */
export function recipeBytes({ indices, size = [], range, form, decoder = "" }) {
  const numbers = (list) => Buffer.concat(list.map(u64));
  const parts = indices
    ? ["video", numbers(runs(indices).flat()), numbers(size), decoder]
    : ["audio", numbers(range), numbers(form), decoder];
  return Buffer.concat(parts.map(field));
}

/** [first, step, number] of each run of ascending indices. */
function runs(indices) {
  const found = [];
  for (let rest = indices; rest.length > 0; rest = rest.slice(Number(found.at(-1)[2]))) {
    const step = rest.length > 1 ? rest[1] - rest[0] : 0n;
    const isOver = (index, number) => index !== rest[0] + step * BigInt(number);
    const end = rest.findIndex(isOver);
    found.push([rest[0], step, BigInt(end < 0 ? rest.length : end)]);
  }
  return found;
}
