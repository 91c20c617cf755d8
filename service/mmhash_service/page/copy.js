/** Copy buttons. */

import { announce, element } from "./dom.js";

/** Create a button that copies the text of an element. */
export function copyButton(name, code) {
  const button = element("button", { type: "button", className: "quiet" }, "Copy");
  button.setAttribute("aria-label", `Copy ${name}`);
  button.addEventListener("click", async () => {
    announce((await copy(code)) ? `Copied: ${name}.` : `Selected: ${name}. Copy it with Ctrl+C.`);
  });
  return button;
}

/** Copy the text, or select it where the browser forbids copying (plain HTTP). Return true if copied. */
async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return false;
  }
}
