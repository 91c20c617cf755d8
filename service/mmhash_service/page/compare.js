/** Compare two images: are they the same, and if not, why? */

const UNKNOWN = "not known";

/**
 * Return one row per property: its name, its value in each image, and whether the values are the
 * same (null if that is not known).
 */
export function properties(one, other) {
  const isSame = one.pixels.key === other.pixels.key;
  const size = equal(shown(one), shown(other));
  const mode = isSame ? true : falseOrNull(equal(pixelBytes(one), pixelBytes(other)));
  const rows = [
    property("bytes", one, other, bytesOf, one.bytes.digest === other.bytes.digest),
    property("pixels", one, other, pixelsOf, one.pixels.digest === other.pixels.digest),
    property("size as shown", one, other, shown, size),
    property("mode", one, other, modeOf, mode),
    property("frames", one, other, framesOf, framesOf(one) === framesOf(other)),
    property("key", one, other, ({ pixels }) => short(pixels.key), isSame),
  ];
  return rows.filter(({ values }) => values.some((value) => value !== UNKNOWN));
}

/** Return the result of the comparison in a sentence. */
export function verdict(rows) {
  const same = Object.fromEntries(rows.map((row) => [row.name, row.same]));
  if (same.bytes) {
    return "The same, byte for byte.";
  }
  if (same.key) {
    const turned = "The browser shows them in two sizes because of their EXIF data, which keys ignore.";
    const why = "The same image in two files: different bytes, but the same pixels, mode and size.";
    return same["size as shown"] === false ? `${why} ${turned}` : why;
  }
  const why = ["pixels", "size as shown", "mode", "frames"].filter((name) => same[name] === false);
  if (why.length === 0) {
    return "Not the same: the bytes of the pixels are the same, but mode, palette, transparency or size differ.";
  }
  return `Not the same: they differ in ${new Intl.ListFormat("en").format(why)}.`;
}

function property(name, one, other, valueOf, same) {
  return { name, values: [one, other].map((image) => valueOf(image) ?? UNKNOWN), same };
}

/** Two contents of one size differ only in their digests: show both. */
function bytesOf({ bytes }) {
  return `${bytes.nbytes.toLocaleString("en")} bytes, ${short(bytes.digest)}`;
}

function pixelsOf({ pixels }) {
  return `${pixels.nbytes.toLocaleString("en")} bytes, ${short(pixels.digest)}`;
}

function short(hex) {
  return `${hex.slice(0, 12)}…`;
}

function framesOf({ pixels }) {
  return pixels.shape[0];
}

/** The displayed size. Browsers rotate pictures by their EXIF data, so it may differ from the hashed size. */
function shown({ size }) {
  return size && `${size.width} × ${size.height}`;
}

function modeOf(image) {
  const count = pixelBytes(image);
  return count && `${count} ${count === 1 ? "byte" : "bytes"} per pixel`;
}

/**
 * Return the number of bytes per pixel, which is all that a response reveals about the mode.
 * No mode has more than 4; other quotients result from frames of several sizes or packed bits.
 */
function pixelBytes({ size, pixels }) {
  const count = size && pixels.nbytes / (size.width * size.height * pixels.shape[0]);
  return [1, 2, 3, 4].includes(count) ? count : null;
}

function equal(one, other) {
  return one === null || other === null ? null : one === other;
}

/** Modes with the same number of bytes per pixel may still differ. */
function falseOrNull(same) {
  return same === false ? false : null;
}
