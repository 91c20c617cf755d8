/** Elements, made of text alone: a file's name may hold anything. */

/** An element with those properties and children; a child that is a string becomes text. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Tell everybody what has happened, also those who hear the page. */
export function announce(text) {
  document.getElementById("status").textContent = text;
}
