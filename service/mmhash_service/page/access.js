/** The form for an API key, shown when the service requires one. */

import { hasKey, useKey } from "./api.js";
import { element } from "./dom.js";

const form = build();

/** Show the form if the error is a missing or wrong key. Return true if it is. */
export function asksForKey(error) {
  if (error.status !== 401) {
    return false;
  }
  if (!form.isConnected) {
    document.querySelector("main").prepend(form);
  }
  form.querySelector(".problem").textContent = hasKey() ? error.message : "";
  return true;
}

/** Call `begin`; if the service refuses, ask for a key and call it again. */
export async function start(begin) {
  form.onsubmit = async (event) => {
    event.preventDefault();
    useKey(form.querySelector("input").value);
    await attempt();
  };
  async function attempt() {
    try {
      await begin();
      form.remove();
    } catch (error) {
      if (!asksForKey(error)) {
        document.getElementById("status").textContent = error.message;
      }
    }
  }
  await attempt();
}

function build() {
  const input = element("input", { id: "api-key", type: "password", autocomplete: "off", required: true });
  input.setAttribute("aria-describedby", "api-key-problem");
  return element(
    "form",
    {},
    element("label", { htmlFor: "api-key" }, "This service requires an API key."),
    element("p", { className: "note" }, "This tab keeps the key until you close it, and sends it only to this service."),
    element("p", {}, input, " ", element("button", {}, "Use key")),
    element("p", { id: "api-key-problem", className: "problem", role: "alert" }),
  );
}
