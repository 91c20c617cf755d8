/** The page of keys: hashes images one after another, and shows their keys. */

import { asksForKey, start } from "./access.js";
import * as api from "./api.js";
import { card, fill } from "./card.js";
import { announce, element } from "./dom.js";

const byId = (id) => document.getElementById(id);
let count = 0;
let engines;
let last = Promise.resolve();

/** Show the files, and hash each after the previous one. */
function add(files) {
  for (const file of files) {
    count += 1;
    const name = `${count}. ${file.name || "picture"}`;
    const picture = element("img", { src: URL.createObjectURL(file), alt: `The picture ${name}` });
    const image = { name, file, picture, size: null, bytes: null, pixels: null, problem: null };
    const made = card(image, () => remove(image, made));
    byId("images").append(made);
    last = last.then(() => hash(image, made));
  }
}

/** Hash the image and show the result. */
async function hash(image, made) {
  try {
    image.size = await sizeOf(image.picture);
    if (engines === undefined) {
      await begin();
    }
    image.bytes = await api.hashImage(image.file, "bytes", engines);
    image.pixels = await api.hashImage(image.file, "pixels", engines);
    announce(`${image.name}: done.`);
  } catch (error) {
    image.problem = error;
    asksForKey(error);
  }
  fill(made, image);
}

/** Return the displayed size of the picture, or null if the browser cannot decode it. */
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
  URL.revokeObjectURL(image.picture.src);
  byId("choose").focus();
}

/** Fetch the names of the engines. */
async function begin() {
  engines = await api.engines();
}

byId("choose").addEventListener("change", () => {
  add(byId("choose").files);
  byId("choose").value = ""; // to allow the same file again
});
addEventListener("paste", (event) => add(event.clipboardData.files));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  add(event.dataTransfer.files);
});
addEventListener("dragover", (event) => {
  event.preventDefault(); // otherwise the browser opens the file
  document.body.classList.add("over");
});
addEventListener("dragleave", () => document.body.classList.remove("over"));
start(begin);
