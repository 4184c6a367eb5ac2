// The form of an item: adds a part to a list. Without this script, each list has one empty part.

import { _ } from "./messages.js";

for (const button of document.querySelectorAll("[data-add]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const part = button.previousElementSibling.cloneNode(true);
    for (const field of [part, ...part.querySelectorAll("input")].filter((one) => one.name)) {
      field.name = field.name.replace(/\d+/, (number) => Number(number) + 1);
      field.ariaLabel = field.ariaLabel?.replace(/\d+$/, (number) => Number(number) + 1) ?? null;
      if (field.type === "checkbox") field.checked = false;
      else field.value = "";
    }
    button.before(part);
    (part.name ? part : part.querySelector("input")).focus();
  });
}

// The preview: next to the text on a wide screen and kept current there, instead of the text on a phone. The server
// renders it, as for the page without scripts, so that it is what the page of the item will show.

const show = document.querySelector("#show-preview");
const preview = document.querySelector("#preview");
const content = document.querySelector("#content");
const isWide = matchMedia("(min-width: 64rem)");
const DELAY_MS = 500;
let timer = null;
let request = null;

async function render() {
  request?.abort();
  request = new AbortController();
  const body = new URLSearchParams(new FormData(content.form));
  body.set("action", "preview");
  try {
    const response = await fetch(content.form.getAttribute("action"), { method: "POST", body, signal: request.signal, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const text = page.querySelector("#preview");
    if (text && response.ok) preview.replaceChildren(...text.childNodes);
  } catch (error) {
    if (error.name !== "AbortError") preview.textContent = _("The preview is not available. Check the connection.");
  }
}

function open(isOpen) {
  preview.hidden = !isOpen;
  show.setAttribute("aria-expanded", isOpen);
  show.textContent = !isOpen ? _("Preview") : isWide.matches ? _("Hide the preview") : _("Edit");
  content.form.classList.toggle("has-preview", isOpen);
  if (isOpen) render();
}

if (show) {
  // Wide screens show it from the beginning.
  open(isWide.matches || !preview.hidden);
  show.addEventListener("click", (event) => {
    event.preventDefault();
    open(preview.hidden);
    (preview.hidden ? content : preview).focus();
  });
  content.addEventListener("input", () => {
    if (preview.hidden) return;
    clearTimeout(timer);
    timer = setTimeout(render, DELAY_MS);
  });
}
