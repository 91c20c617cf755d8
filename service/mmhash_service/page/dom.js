/** Builds DOM elements from text, never from markup, because a file name may contain anything. */

/** Create an element with properties and children. String children become text. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Create a table row. On narrow screens each cell shows its column's name. */
export function tableRow(names, values, properties = {}) {
  const cells = values.map((value, index) => {
    const cell = element(index ? "td" : "th", {}, String(value));
    cell.dataset.name = names[index];
    return cell;
  });
  cells[0].scope = "row";
  return element("tr", properties, ...cells);
}

/** Show a status message, which screen readers announce. */
export function announce(text) {
  document.getElementById("status").textContent = text;
}
