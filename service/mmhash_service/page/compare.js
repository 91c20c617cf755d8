/** Compare two images: are they the same, and if not, what differs? */

const UNKNOWN = "not known";

/**
 * Return one row per property: its name, its value in each image, and whether the values are the
 * same (null if that is not known).
 */
export function properties(one, other) {
  return [
    property("bytes", one, other, bytesOf, one.bytes.digest === other.bytes.digest),
    property("pixels", one, other, pixelsOf, one.pixels.digest === other.pixels.digest),
    property("size as shown", one, other, shown, isSameSize(one, other)),
    property("frames", one, other, framesOf, framesOf(one) === framesOf(other)),
    property("key", one, other, ({ pixels }) => short(pixels.key), one.pixels.key === other.pixels.key),
  ];
}

/** Return the result of the comparison in a sentence. */
export function verdict(rows) {
  const same = Object.fromEntries(rows.map((row) => [row.name, row.same]));
  if (same.bytes) {
    return "The same, byte for byte.";
  }
  if (same.key) {
    const why = "The same image in two files: the bytes differ, the pixels do not.";
    const turned = "The browser rotates pictures by their EXIF data, which keys ignore.";
    return same["size as shown"] === false ? `${why} ${turned}` : why;
  }
  const why = ["pixels", "size as shown", "frames"].filter((name) => same[name] === false);
  if (why.length === 0) {
    return "Not the same: the bytes of the pixels are equal, but their mode, palette, transparency or size differs.";
  }
  return `Not the same: they differ in ${new Intl.ListFormat("en").format(why)}.`;
}

function property(name, one, other, valueOf, same) {
  return { name, values: [one, other].map((image) => valueOf(image) ?? UNKNOWN), same };
}

/** Show the digest beside the length: two files of equal length may differ. */
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

/** Return the size on the screen. It may differ from the hashed size, because browsers obey EXIF. */
function shown({ size }) {
  return size && `${size.width} × ${size.height}`;
}

function isSameSize(one, other) {
  return one.size && other.size ? shown(one) === shown(other) : null;
}
