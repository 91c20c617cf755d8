/** Copy buttons. */

import { announce, element } from "./dom.js";

/** Create a button that copies the text of `code`. */
export function copyButton(name, code) {
  const button = element("button", { type: "button", className: "quiet" }, "Copy");
  button.setAttribute("aria-label", `Copy ${name}`);
  button.addEventListener("click", async () => {
    announce((await copy(code)) ? `Copied: ${name}.` : `Selected: ${name}. Copy it with Ctrl+C.`);
  });
  return button;
}

/** Create a button that copies the text that `textOf` returns. */
export function copyTextButton(label, name, textOf) {
  const button = element("button", { type: "button", className: "quiet" }, label);
  button.setAttribute("aria-label", `Copy ${name}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(textOf());
      announce(`Copied: ${name}.`);
    } catch {
      // Plain HTTP: show the text to copy by hand.
      const shown = element("code", { className: "copied" }, textOf());
      button.parentElement.querySelector(".copied")?.remove();
      button.parentElement.append(shown);
      getSelection().selectAllChildren(shown);
      announce(`Selected: ${name}. Copy it with Ctrl+C.`);
    }
  });
  return button;
}

/** Copy the text, or select it if copying is not allowed (plain HTTP); return whether it was copied. */
async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return false;
  }
}
