/** DOM elements built from text only, never from markup: a file name may contain anything. */

/** Create an element with properties and children; string children become text. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Show a status message; screen readers announce it. */
export function announce(text) {
  document.getElementById("status").textContent = text;
}
