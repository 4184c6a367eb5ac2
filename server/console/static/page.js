// Behaviour of every page: the keys that focus the search box, the help dialog, copying, local times, and preferences.

import { _ } from "./messages.js";

export const search = document.querySelector("#search-box");
const help = document.querySelector("#help");

/** Whether a key press belongs to the page and not to a field that the person is typing in. */
export function isShortcut(event) {
  const target = event.target;
  const isField = target instanceof Element && target.closest("input, textarea, select, [contenteditable]");
  return !isField && !event.ctrlKey && !event.metaKey && !event.altKey && !document.querySelector("dialog[open]");
}

document.addEventListener("keydown", (event) => {
  if (search && event.key === "/" && isShortcut(event)) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (help && event.key === "?" && isShortcut(event)) {
    event.preventDefault();
    help.showModal();
  } else if (event.key === "Escape" && event.target === search) {
    search.blur();
  }
});

// The tab of this page may be outside a narrow screen.
for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
  const list = tab.closest(".tabs").getBoundingClientRect();
  const { left, right } = tab.getBoundingClientRect();
  tab.closest(".tabs").scrollLeft += Math.max(0, right - list.right) + Math.min(0, left - list.left);
}

/** Copies the text of the element, or the value of the field, that a button names. */
async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  await navigator.clipboard.writeText(source.value ?? source.innerText);
  const label = button.textContent;
  button.textContent = _("Copied");
  setTimeout(() => (button.textContent = label), 1500);
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (!(target instanceof Element)) return;
  if (help && target.closest("[data-help]")) {
    event.preventDefault();
    help.showModal();
  }
  const button = target.closest("[data-copy]");
  if (button) copy(button);
});

const exact = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "full", timeStyle: "medium" });

/** Shows the exact time in the time zone of the browser when the pointer is over a time. Results are shown first. */
export function localizeTimes(root) {
  setTimeout(() => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const time = new Date(element.dateTime);
      if (!Number.isNaN(time.getTime())) element.title = exact.format(time);
    }
  });
}
localizeTimes(document);

// A language or theme is used when it is chosen. Without this script, the form has a button.
const preferences = document.querySelector("form#preferences");
if (preferences) {
  preferences.querySelector("button").hidden = true;
  preferences.addEventListener("change", () => preferences.requestSubmit());
}

for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

// Shows a page if the server cannot be reached, in the language of this one. Nothing else is kept.
if (isSecureContext) navigator.serviceWorker?.register(`/service-worker.js?${document.documentElement.lang}`).catch(() => {});
