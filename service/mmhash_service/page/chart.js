/** A line chart with one value per second, the newest on the right. */

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 40;

/** A chart of `width` values in `figure`; `format` returns the text of a value. */
export class Chart {
  #value = document.createElement("p");
  #line = document.createElementNS(SVG, "path");

  constructor(figure, width, format) {
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", `0 -2 ${width - 1} ${HEIGHT + 4}`);
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("aria-hidden", "true"); // the value next to it is readable
    drawing.append(this.#line);
    this.#value.className = "value";
    figure.append(this.#value, drawing);
    this.width = width;
    this.format = format;
  }

  /** Draw the values; null is a gap. The upper edge is `top`, by default the highest value. */
  draw(values, top = Math.max(...values, Number.MIN_VALUE)) {
    const newest = values.at(-1) ?? null;
    this.#value.textContent = newest === null ? "–" : this.format(newest);
    const left = this.width - values.length;
    const points = values.map((value, index) => {
      const isFirst = (values[index - 1] ?? null) === null;
      return value === null ? "" : `${isFirst ? "M" : "L"}${left + index} ${HEIGHT * (1 - value / top)}`;
    });
    this.#line.setAttribute("d", points.join(""));
  }
}
