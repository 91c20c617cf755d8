/** The page: images come in, are hashed one after another, shown and compared. */

import * as api from "./api.js";
import { card, fill } from "./card.js";
import { properties, verdict } from "./compare.js";
import { announce, element } from "./dom.js";
import { watch } from "./live.js";

const at = (id) => document.getElementById(id);
const images = [];
let named = 0;
let engines;
let last = Promise.resolve();

/** Show the files, and hash each when those before it are done. */
function add(files) {
  for (const file of files) {
    named += 1;
    const name = `${named}. ${file.name || "picture"}`;
    const picture = element("img", { src: URL.createObjectURL(file), alt: `The picture ${name}` });
    const image = { name, file, picture, size: null, bytes: null, pixels: null, problem: null };
    const made = card(image, () => remove(image, made));
    at("images").append(made);
    images.push(image);
    last = last.then(() => look(image, made));
  }
}

/** Ask what the image is, and show it. */
async function look(image, made) {
  try {
    image.size = await sizeOf(image.picture);
    image.bytes = await api.hashBytes(image.file);
    if (engines === undefined) {
      await begin();
    }
    image.pixels = await api.hashPixels(image.file, engines);
    announce(`${image.name}: done.`);
  } catch (error) {
    image.problem = error;
    report(error, `${image.name}: `);
  }
  fill(made, image);
  offer();
}

/** The size of the picture as it is shown, or null of one that the browser does not know. */
async function sizeOf(picture) {
  try {
    await picture.decode();
    return { width: picture.naturalWidth, height: picture.naturalHeight };
  } catch {
    return null;
  }
}

function remove(image, made) {
  made.remove();
  images.splice(images.indexOf(image), 1);
  URL.revokeObjectURL(image.picture.src);
  offer();
  at("choose").focus();
}

/** Let any two of the images be compared: when one comes or goes, the newest two. */
function offer() {
  const known = images.filter((image) => image.pixels);
  at("comparison").hidden = known.length < 2;
  [at("one"), at("other")].forEach((select, which) => {
    select.replaceChildren(...known.map(({ name }) => new Option(name, name)));
    select.selectedIndex = known.length - 2 + which;
  });
  compare();
}

function compare() {
  const pair = ["one", "other"].map((id) => images.find(({ name }) => name === at(id).value));
  if (pair.includes(undefined)) {
    return;
  }
  const rows = properties(...pair);
  at("verdict").textContent = verdict(rows);
  at("comparison").querySelector("tbody").replaceChildren(...rows.map(line));
}

function line({ name, values, same }) {
  const word = same === null ? "not known" : same ? "same" : "different";
  return element(
    "tr",
    { className: word.replace(" ", "-") },
    element("th", { scope: "row" }, name),
    ...values.map((value) => element("td", {}, String(value))),
    element("td", { className: "word" }, word),
  );
}

/** Ask what the service can do, and watch it from then on. */
async function begin() {
  const known = await api.engines();
  if (engines === undefined) {
    watch(at("service"));
  }
  engines = known;
}

/** Say what went wrong; where a key is missing, ask for it. */
function report(error, what = "") {
  announce(what + error.message);
  if (error.status === 401) {
    at("access").hidden = false;
  }
}

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useKey(at("api-key").value);
  at("access").hidden = true;
  announce("");
  begin().catch((error) => report(error));
});
at("choose").addEventListener("change", () => {
  add(at("choose").files);
  at("choose").value = ""; // so that the same file may be chosen again
});
for (const id of ["one", "other"]) {
  at(id).addEventListener("change", compare);
}
addEventListener("paste", (event) => add(event.clipboardData.files));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  add(event.dataTransfer.files);
});
addEventListener("dragover", (event) => {
  event.preventDefault(); // or the browser would leave the page for the file
  document.body.classList.add("over");
});
addEventListener("dragleave", () => document.body.classList.remove("over"));
begin().catch((error) => report(error));
