/** The buttons that copy a value. */

import { announce, element } from "./dom.js";

/** A button that copies the text of `code`. */
export function copyButton(name, code) {
  const button = element("button", { type: "button", className: "quiet" }, "Copy");
  button.setAttribute("aria-label", `Copy ${name}`);
  button.addEventListener("click", async () => {
    announce((await copy(code)) ? `Copied: ${name}.` : `Selected: ${name}. Copy it with Ctrl+C.`);
  });
  return button;
}

/** Whether the text was copied; if it may not be, as over plain HTTP, it is selected. */
async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return false;
  }
}
