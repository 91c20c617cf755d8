/** A line of values, a second each, the newest at the right. */

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 40;

/** A chart of `width` values in `figure`; `spell` says a value in words. */
export class Chart {
  #value = document.createElement("p");
  #line = document.createElementNS(SVG, "path");

  constructor(figure, width, spell) {
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", `0 -2 ${width - 1} ${HEIGHT + 4}`);
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("aria-hidden", "true"); // the value beside it says as much
    drawing.append(this.#line);
    this.#value.className = "value";
    figure.append(this.#value, drawing);
    this.width = width;
    this.spell = spell;
  }

  /** Draw the values, of which null is a gap; the highest, or `top`, is at the upper edge. */
  draw(values, top = Math.max(...values, Number.MIN_VALUE)) {
    const newest = values.at(-1) ?? null;
    this.#value.textContent = newest === null ? "–" : this.spell(newest);
    const left = this.width - values.length;
    const points = values.map((value, at) => {
      const isFirst = (values[at - 1] ?? null) === null;
      return value === null ? "" : `${isFirst ? "M" : "L"}${left + at} ${HEIGHT * (1 - value / top)}`;
    });
    this.#line.setAttribute("d", points.join(""));
  }
}
