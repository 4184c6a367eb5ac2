// Behaviour of every page: the keys that focus the search box, the help dialog, and local times.

export const search = document.querySelector("#search-box");
const help = document.querySelector("#help");

/** Whether a key press belongs to the page and not to a field that the person is typing in. */
export function isShortcut(event) {
  const target = event.target;
  const isField = target instanceof Element && target.closest("input, textarea, select, [contenteditable]");
  return !isField && !event.ctrlKey && !event.metaKey && !event.altKey && !document.querySelector("dialog[open]");
}

document.addEventListener("keydown", (event) => {
  const isCommandK = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey;
  if (search && (isCommandK || (event.key === "/" && isShortcut(event)))) {
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

document.addEventListener("click", (event) => {
  const target = event.target;
  if (help && target instanceof Element && target.closest("[data-help]")) {
    event.preventDefault();
    help.showModal();
  }
});

/** Shows the exact time in the time zone of the browser when the pointer is over a time. */
export function localizeTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const time = new Date(element.dateTime);
    if (!Number.isNaN(time.getTime())) element.title = time.toLocaleString(undefined, { dateStyle: "full", timeStyle: "medium" });
  }
}
localizeTimes(document);

for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
