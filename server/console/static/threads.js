// The page of the message bus: search messages while typing, go from one to the next, and show new messages at once.

import { isShortcut } from "./page.js";
import { DEBOUNCE_MS, createNavigation, follow } from "./regions.js";

const form = document.querySelector("form#message-search");
const box = document.querySelector("input#message-box");
const regions = ["section#list", "section#reader", "section#results"];
let timer;
let searched = box.value;

/** Brings the message that was chosen into view, and its entry in the list of results. */
function reveal({ quiet }) {
  if (quiet) return;
  const query = new URLSearchParams(location.search);
  box.value = document.activeElement === box ? box.value : (query.get("q") ?? "");
  const [here] = form.querySelectorAll("input[value=thread]");
  here.disabled = location.pathname === "/threads";
  const scope = query.get("scope") ?? (here.disabled ? "all" : box.value ? "all" : "thread");
  form.querySelector(`input[value=${scope === "thread" && !here.disabled ? "thread" : "all"}]`).checked = true;
  const message = document.querySelector(".message.current");
  if (message) message.scrollIntoView({ block: "center" });
  document.querySelector(".found a[aria-current]")?.scrollIntoView({ block: "nearest" });
}

const { show, isLoading } = createNavigation({ prefix: "/threads", regions, shown: reveal });

function searchNow({ push = false } = {}) {
  clearTimeout(timer);
  searched = box.value;
  const fields = new FormData(form);
  if (!fields.get("q")) fields.delete("scope");
  const query = new URLSearchParams([...fields].filter(([, value]) => value !== ""));
  show(`${location.pathname}${query.size ? `?${query}` : ""}`, { push });
}

const follower = (id) => document.querySelector(`a#${id}`)?.click();

box.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(searchNow, DEBOUNCE_MS);
});
form.addEventListener("change", (event) => event.target !== box && box.value && searchNow());
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (box.value === searched && document.querySelector("a#next")) follower("next");
  else searchNow({ push: true });
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]") && document.querySelector("a#close")) {
    event.preventDefault();
    clearTimeout(timer);
    box.value = searched = "";
    follower("close");
    return;
  }
  if (!isShortcut(event)) return;
  if (event.key === "n") follower("next");
  else if (event.key === "p") follower("previous");
  else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll(".row a")];
    const place = links.findIndex((link) => link.hasAttribute("aria-current"));
    links[place < 0 ? 0 : place + (event.key === "j" ? 1 : -1)]?.click();
  }
});

for (const button of form.querySelectorAll("button")) button.hidden = true; // results appear while typing
follow(() => isLoading() || show(location.href, { quiet: true }));
