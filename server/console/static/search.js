// Search as you type, and reading hits next to their list. The server renders everything: this script requests the parts
// of the page for the current form, and replaces them; the results first, because filters have counts, which take longer.
// The address of the page is its whole state.

import { _ } from "./messages.js";
import { isShortcut, localizeTimes, search } from "./page.js";

const DEBOUNCE_MS = 200;
const FILTERS_DELAY_MS = 200;
const form = document.querySelector("#search");
const layout = document.querySelector("#layout");
const preview = document.querySelector("#preview");
const wide = matchMedia("(min-width: 64.01rem)");
let request = new AbortController();
let previewRequest = new AbortController();
let timer;
let selected = -1;

function address() {
  const fields = [...new FormData(form)].filter(([, value]) => value !== "");
  const query = new URLSearchParams(fields);
  return `${location.pathname}${query.size ? `?${query}` : ""}`;
}

/** Requests a page and returns its document. An answer that is no longer wanted is aborted. */
async function load(url, controller) {
  const response = await fetch(url, { signal: controller.signal, headers: { Accept: "text/html" } });
  if (response.redirected && new URL(response.url).pathname !== new URL(url, location.href).pathname) location.assign(url);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

async function show(url, { push = false } = {}) {
  request.abort();
  request = new AbortController();
  layout.classList.add("busy");
  try {
    const results = await part(url, "results");
    history[push ? "pushState" : "replaceState"](null, "", url);
    document.querySelector("#results").replaceWith(results);
    document.title = results.dataset.title;
    localizeTimes(results);
    closePreview();
    layout.classList.remove("busy");
    // Whoever types on needs no filters for this query.
    const current = request;
    await new Promise((resolve) => setTimeout(resolve, FILTERS_DELAY_MS));
    if (current !== request) return;
    const filters = await part(url, "filters");
    const more = filters.querySelector("#more-filters");
    if (more && document.querySelector("#more-filters[open]")) more.open = true;
    document.querySelector("#filters").replaceWith(filters);
  } catch (error) {
    if (error.name === "AbortError") return;
    document.querySelector("#status").textContent = _("The server cannot be reached. Check the connection and try again.");
    layout.classList.remove("busy");
  }
}

/** Requests a part of the page. If the answer is another page, such as an error, the browser opens it. */
async function part(url, name) {
  const page = await load(`${url}${url.includes("?") ? "&" : "?"}part=${name}`, request);
  const found = page.querySelector(`#${name}`);
  if (found) return found;
  location.assign(url);
  throw new DOMException("another page", "AbortError");
}

const hits = () => [...document.querySelectorAll(".hit")];

function select(index, { scroll = true } = {}) {
  const all = hits();
  if (!all.length) return;
  selected = Math.max(0, Math.min(index, all.length - 1));
  all.forEach((hit, position) => hit.classList.toggle("selected", position === selected));
  const link = all[selected].querySelector("h2 a, h3 a");
  link.focus({ preventScroll: true });
  if (scroll) all[selected].scrollIntoView({ block: "nearest" });
  if (wide.matches) openPreview(link.href);
}

async function openPreview(url) {
  previewRequest.abort();
  previewRequest = new AbortController();
  layout.classList.add("split");
  preview.hidden = false;
  try {
    const page = await load(url, previewRequest);
    const item = page.querySelector("#item") ?? page.querySelector("main");
    for (const part of item.querySelectorAll("script, form, .toolbar, .matches")) part.remove();
    preview.replaceChildren(...item.childNodes);
    localizeTimes(preview);
    preview.querySelector("#passage")?.scrollIntoView({ block: "center" });
    // Ids belong to the page of the item; here they would repeat those of this page.
    for (const part of preview.querySelectorAll("[id]")) part.removeAttribute("id");
  } catch (error) {
    if (error.name !== "AbortError") preview.textContent = _("The preview could not be loaded.");
  }
}

function closePreview() {
  previewRequest.abort();
  selected = -1;
  layout.classList.remove("split");
  preview.hidden = true;
  preview.replaceChildren();
}

function searchSoon() {
  clearTimeout(timer);
  form.elements.offset?.remove();
  timer = setTimeout(() => show(address()), DEBOUNCE_MS);
}

search.addEventListener("input", searchSoon);
document.addEventListener("change", (event) => event.target.form === form && event.target !== search && searchSoon());
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  show(address(), { push: true });
});

document.addEventListener("keydown", (event) => {
  if (event.target === search && event.key === "ArrowDown") {
    event.preventDefault();
    return select(0);
  }
  if (!isShortcut(event)) return;
  if (event.key === "j") select(selected + 1);
  else if (event.key === "k") select(selected - 1);
  else if (event.key === "Escape") closePreview();
  else if (event.key === "Enter" && selected >= 0 && event.target === document.body) hits()[selected]?.querySelector("h2 a, h3 a").click();
});

document.addEventListener("click", (event) => {
  const chip = event.target instanceof Element && event.target.closest("#filters a, .tabs a");
  if (chip && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    chip.closest(".tabs")?.querySelector("[aria-current]")?.removeAttribute("aria-current");
    return show(chip.getAttribute("href"), { push: true });
  }
  const hit = event.target instanceof Element && event.target.closest(".hit");
  if (hit && wide.matches && !event.target.closest("a, summary, details, button")) select(hits().indexOf(hit), { scroll: false });
});

addEventListener("popstate", () => location.reload());
