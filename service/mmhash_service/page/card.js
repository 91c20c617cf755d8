/** The card of an image: its picture and its hashes. */

import { copyButton } from "./copy.js";
import { element } from "./dom.js";

/** Create the card of an image that has not been hashed yet. */
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
      element("p", { className: "problem", role: "alert" }),
    ),
  );
}

/** Fill in the results of an image. */
export function fill(card, image) {
  const { bytes, pixels, problem } = image;
  card.querySelector(".note").replaceChildren(...notes(image));
  const rows = [
    ...(bytes ? keyRows(bytes, "bytes") : []),
    ...(pixels ? keyRows(pixels, "pixels") : []),
  ];
  card.querySelector("dl").replaceChildren(...rows);
  card.querySelector(".problem").textContent = problem?.message ?? "";
}

function notes({ file, size, pixels }) {
  const memo = { hit: "memo hit", miss: "memo miss" }[pixels?.memo];
  return [
    size && `${size.width} × ${size.height}`,
    `${file.size.toLocaleString("en")} bytes`,
    pixels && `${pixels.elapsed_ms} ms`,
    memo && element("mark", { className: pixels.memo }, memo),
  ]
    .filter(Boolean)
    .flatMap((note, index) => (index ? [" · ", note] : [note]));
}

function keyRows({ digest, key, engines }, of) {
  return [
    row(`digest of the ${of}`, digest),
    row(`key of the ${of}`, key),
    ...engineRows(engines, of),
  ];
}

function engineRows(engines, of) {
  return Object.entries(engines).flatMap(([engine, fields]) =>
    Object.entries(fields).map(([field, value]) =>
      row(`${engine} ${field} of the ${of}`, Array.isArray(value) ? `[${value.join(", ")}]` : String(value)),
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
