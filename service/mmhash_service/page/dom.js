/** Builds DOM elements from text, never from markup, because a file name may contain anything. */

/** Create an element with properties and children. String children become text. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Show a status message, which screen readers announce. */
export function announce(text) {
  document.getElementById("status").textContent = text;
}
