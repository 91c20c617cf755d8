/** Two images beside each other: the same or not, and why, as far as it is known. */

/**
 * A row a property: its name, its value in each of the images, and whether the two are the same;
 * null where that is not known.
 */
export function properties(one, other) {
  const isOne = one.pixels.key === other.pixels.key;
  const size = equal(shown(one), shown(other));
  const mode = isOne ? true : falseOrNull(equal(pixelBytes(one), pixelBytes(other)));
  return [
    property("bytes", one, other, bytesOf, one.bytes.digest === other.bytes.digest),
    property("pixels", one, other, pixelsOf, one.pixels.digest === other.pixels.digest),
    property("size as shown", one, other, shown, size),
    property("mode", one, other, modeOf, mode),
    property("frames", one, other, framesOf, framesOf(one) === framesOf(other)),
    property("key", one, other, ({ pixels }) => `${pixels.key.slice(0, 12)}…`, isOne),
  ];
}

/** The answer in a sentence. */
export function verdict(rows) {
  const same = Object.fromEntries(rows.map((row) => [row.name, row.same]));
  if (same.bytes) {
    return "The same, byte for byte.";
  }
  if (same.key) {
    const turned = "The browser shows them in two sizes by their EXIF data, which no key heeds.";
    const why = "The same image in two files: other bytes, but the same pixels, mode and size.";
    return same["size as shown"] === false ? `${why} ${turned}` : why;
  }
  const why = ["pixels", "size as shown", "mode", "frames"].filter((name) => same[name] === false);
  if (why.length === 0) {
    return "Not the same: the pixels are of the same bytes, but not what these mean, by mode, palette, transparency or size.";
  }
  return `Not the same: they differ in ${new Intl.ListFormat("en").format(why)}.`;
}

function property(name, one, other, valueOf, same) {
  return { name, values: [one, other].map((image) => valueOf(image) ?? "not known"), same };
}

function bytesOf({ bytes }) {
  return `${bytes.nbytes.toLocaleString("en")} bytes`;
}

function pixelsOf({ pixels }) {
  return `${pixels.nbytes.toLocaleString("en")} bytes`;
}

function framesOf({ pixels }) {
  return pixels.shape[0];
}

/** The browser turns a picture as its EXIF data say, so this is not always the size that is hashed. */
function shown({ size }) {
  return size && `${size.width} × ${size.height}`;
}

function modeOf(image) {
  const count = pixelBytes(image);
  return count && `${count} ${count === 1 ? "byte" : "bytes"} a pixel`;
}

/**
 * How many bytes a pixel has: of the mode this alone can be told from an answer.
 * No mode has more than 4; any other quotient is that of frames of several sizes or of packed bits.
 */
function pixelBytes({ size, pixels }) {
  const count = size && pixels.nbytes / (size.width * size.height * pixels.shape[0]);
  return [1, 2, 3, 4].includes(count) ? count : null;
}

function equal(one, other) {
  return one === null || other === null ? null : one === other;
}

/** Modes of as many bytes a pixel may differ all the same. */
function falseOrNull(same) {
  return same === false ? false : null;
}
