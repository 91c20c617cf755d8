/** An image on the page: its picture, and what the service says of it. */

import { copyButton } from "./copy.js";
import { element } from "./dom.js";

/** The card of an image, on which nothing is known yet but its name. */
export function card(image, remove) {
  const button = element("button", { type: "button", className: "quiet" }, "Remove");
  button.setAttribute("aria-label", `Remove ${image.name}`);
  button.addEventListener("click", remove);
  const noPicture = element("span", {}, "no picture");
  image.picture.addEventListener("error", () => image.picture.replaceWith(noPicture));
  return element(
    "li",
    { className: "card" },
    element("div", { className: "picture" }, image.picture),
    element(
      "div",
      { className: "facts" },
      element("div", { className: "line" }, element("h3", {}, image.name), button),
      element("p", { className: "note" }, "Hashing…"),
      element("dl"),
    ),
  );
}

/** Put onto the card what is known of its image now. */
export function fill(made, image) {
  const { bytes, pixels, problem } = image;
  made.querySelector(".note").replaceChildren(...notes(image));
  const rows = [
    bytes && row("digest of the bytes", bytes.digest),
    pixels && row("digest of the pixels", pixels.digest),
    pixels && row("key", pixels.key),
    ...(pixels ? spellings(pixels.engines) : []),
  ];
  made.querySelector("dl").replaceChildren(...rows.filter(Boolean));
  if (problem) {
    made.querySelector(".facts").append(element("p", { className: "problem" }, problem.message));
  }
}

function notes({ file, size, pixels }) {
  const known = { hit: "known to the memo", miss: "new to the memo" }[pixels?.memo];
  return [
    size && `${size.width} × ${size.height}`,
    `${file.size.toLocaleString("en")} bytes`,
    pixels && `${pixels.elapsed_ms} ms`,
    known && element("mark", { className: pixels.memo }, known),
  ]
    .filter(Boolean)
    .flatMap((note, number) => (number ? [" · ", note] : [note]));
}

function spellings(engines) {
  return Object.entries(engines).flatMap(([engine, fields]) =>
    Object.entries(fields).map(([field, value]) =>
      row(`${engine} ${field}`, Array.isArray(value) ? `[${value.join(", ")}]` : String(value)),
    ),
  );
}

function row(name, value) {
  const code = element("code", {}, value);
  return element(
    "div",
    {},
    element("dt", {}, name),
    element("dd", {}, code, copyButton(name, code)),
  );
}
