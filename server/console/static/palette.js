// The palette (Ctrl K): jumps to items, tags and pages, and runs commands. The page lists its commands in a template; the
// server finds items while the person types, and returns the tags when the palette is opened.

import { _, ngettext } from "./messages.js";

const DEBOUNCE_MS = 120;
const dialog = document.querySelector("dialog#palette");
const box = dialog.querySelector("input");
const list = dialog.querySelector("ul");
const status = dialog.querySelector("[role=status]");
const opener = document.querySelector("#open-palette");
const preferences = document.querySelector("form#preferences");
const commands = [...document.querySelector("#palette-commands").content.children].map((element) => ({
  text: element.textContent,
  kind: element.hasAttribute("data-command") ? _("Command") : _("Page"),
  run: () => run(element),
}));
let tags = null;
let items = [];
let options = [];
let selected = 0;
let request = new AbortController();
let timer = null;

function run(element) {
  if (element.matches("[data-help]")) {
    document.querySelector("dialog#help").showModal();
  } else if (element.name) {
    preferences.elements[element.name].value = element.value;
    preferences.requestSubmit();
  } else {
    location.assign(element.getAttribute("href"));
  }
}

const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Whether every word of the query begins a word of the text. */
function matches(text, query) {
  const words = fold(text).split(/[^\p{L}\p{N}]+/u);
  return fold(query).split(/\s+/).filter(Boolean).every((part) => words.some((word) => word.startsWith(part)) || fold(text).startsWith(part));
}

const link = (kind) => ({ text, address }) => ({ text, kind, run: () => location.assign(address) });

function select(index) {
  selected = options.length ? (index + options.length) % options.length : 0;
  for (const [n, row] of [...list.children].entries()) row.setAttribute("aria-selected", String(n === selected));
  const row = list.children[selected];
  if (row) box.setAttribute("aria-activedescendant", row.id);
  else box.removeAttribute("aria-activedescendant");
  row?.scrollIntoView({ block: "nearest" });
}

function show(found) {
  items = found;
  const query = box.value.trim();
  const known = commands.filter((one) => matches(one.text, query));
  const tagged = query ? (tags ?? []).filter((one) => matches(one.text, query)).slice(0, 5) : [];
  // Pages and commands first: they are few, and stay where they are while items are found.
  options = [...known, ...tagged.map(link(_("Tag"))), ...items.map((item) => link(item.kind)(item))];
  list.replaceChildren(
    ...options.map((option, index) => {
      const row = Object.assign(document.createElement("li"), { id: `palette-${index}` });
      row.setAttribute("role", "option");
      const text = Object.assign(document.createElement("span"), { textContent: option.text, dir: "auto" });
      row.append(text, Object.assign(document.createElement("small"), { textContent: option.kind }));
      return row;
    }),
  );
  status.textContent = options.length ? ngettext("%(num)s suggestion", "%(num)s suggestions", options.length) : _("Nothing found");
  select(0);
}

async function ask(query, signal) {
  try {
    const response = await fetch(`/palette?${new URLSearchParams({ q: query })}`, { signal });
    if (!response.ok) return null;
    return await response.json();
  } catch (error) {
    if (error.name !== "AbortError") status.textContent = _("The server cannot be reached. Check the connection and try again.");
    return null;
  }
}

function open() {
  if (dialog.open) return dialog.close();
  if (document.querySelector("dialog[open]")) return;
  box.value = "";
  show([]);
  dialog.showModal();
  // Not ended by the searches of a person who types before the tags have arrived.
  ask("").then((answer) => {
    tags = answer?.tags ?? tags;
    if (box.value.trim()) show(items);
  });
}

box.addEventListener("input", () => {
  show([]);
  clearTimeout(timer);
  const query = box.value.trim();
  if (query) timer = setTimeout(async () => {
    request.abort();
    request = new AbortController();
    const answer = await ask(query, request.signal);
    if (answer && query === box.value.trim()) show(answer.items);
  }, DEBOUNCE_MS);
});

/** Runs an option. The dialog is closed first, so that the focus returns to where it was. */
function choose(index) {
  const option = options[index];
  if (!option) return;
  dialog.close();
  option.run();
}

box.addEventListener("keydown", (event) => {
  const steps = { ArrowDown: selected + 1, ArrowUp: selected - 1, Home: 0, End: options.length - 1 };
  if (event.key === "Enter" && !event.isComposing) choose(selected);
  else if (event.key in steps && !(event.shiftKey || (box.value && ["Home", "End"].includes(event.key)))) select(steps[event.key]);
  else return;
  event.preventDefault();
});
list.addEventListener("click", (event) => choose([...list.children].indexOf(event.target.closest("li"))));
list.addEventListener("mousemove", (event) => {
  const index = [...list.children].indexOf(event.target.closest("li"));
  if (index >= 0 && index !== selected) select(index);
});
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  event.preventDefault();
  open();
});
opener.hidden = false;
opener.addEventListener("click", open);
