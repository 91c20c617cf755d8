/** The card of an image: its picture and its hashes. */

import { pixelsCommand, toJson } from "./api.js";
import { copyButton, copyTextButton } from "./copy.js";
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
      element("div", { className: "line start copies" }),
    ),
  );
}

/** Fill in the results of an image. */
export function fill(card, image, engines) {
  const { bytes, pixels, problem } = image;
  card.querySelector(".note").replaceChildren(...notes(image));
  const rows = [
    ...(bytes ? keyRows(bytes, "bytes", "sent by the gateway") : []),
    ...(pixels ? keyRows(pixels, "pixels", "of the pixels") : []),
  ];
  card.querySelector("dl").replaceChildren(...rows);
  card.querySelector(".problem").textContent = problem?.message ?? "";
  if (pixels) {
    const all = { file: image.file.name, bytes, pixels };
    card.querySelector(".copies").replaceChildren(
      copyTextButton("Copy all as JSON", `all of ${image.name} as JSON`, () => toJson(all)),
      copyTextButton("Copy as curl", `${image.name} as curl`, () => pixelsCommand(image.file, engines)),
    );
  }
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

function keyRows({ digest, key, engines }, of, whose) {
  return [
    row(`digest of the ${of}`, digest),
    row(`key of the ${of}`, key),
    ...engineRows(engines, whose),
  ];
}

function engineRows(engines, whose) {
  return Object.entries(engines).flatMap(([engine, fields]) =>
    Object.entries(fields).map(([field, value]) =>
      row(`${engine} ${field}, ${whose}`, Array.isArray(value) ? `[${value.join(", ")}]` : String(value)),
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
