// The history page: filter while typing, open conversations next to the list, change them, and show new ones at once.

import { _ } from "./messages.js";
import { isShortcut } from "./page.js";
import { DEBOUNCE_MS, createNavigation, follow } from "./regions.js";

const filter = document.querySelector("form#filter");
const box = document.querySelector("input#filter-box");
const menu = document.querySelector("div#menu");
const dialogs = [...document.querySelectorAll("dialog:not(#help)")];
let timer;
let chosen = null;

const current = () => decodeURIComponent(location.pathname.split("/")[2] ?? "");

function prepare(region) {
  for (const button of region.querySelectorAll(".more")) button.hidden = false;
}

const { show, isLoading } = createNavigation({
  prefix: "/history",
  regions: ["div#notice", "section#list", "section#reader"],
  prepare,
  shown: ({ push }) => push && scrollTo(0, 0),
});

// Filters

function filterNow({ push = false } = {}) {
  clearTimeout(timer);
  const fields = [...new FormData(filter)].filter(([, value]) => value !== "");
  const query = new URLSearchParams(fields);
  show(`${location.pathname}${query.size ? `?${query}` : ""}`, { push, only: ["section#list"] });
}

box.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(filterNow, DEBOUNCE_MS);
});
filter.addEventListener("change", (event) => event.target !== box && filterNow());
filter.addEventListener("submit", (event) => {
  event.preventDefault();
  filterNow({ push: true });
});

// Actions

/** Opens the actions of a row. Its link is the address that forms are sent to. */
function openMenu(button) {
  const { id, pinned, archived } = button.dataset;
  chosen = { ...button.dataset, address: button.closest(".row").querySelector("a").href };
  const [pin, archive] = menu.querySelectorAll("button[name=action]");
  Object.assign(pin, pinned === "true" ? { value: "unpin", textContent: _("Unpin") } : { value: "pin", textContent: _("Pin") });
  Object.assign(archive, archived === "true" ? { value: "unarchive", textContent: _("Unarchive") } : { value: "archive", textContent: _("Archive") });
  for (const link of menu.querySelectorAll("[data-format]")) {
    link.href = `/conversations/${id}/download?format=${link.dataset.format}`;
    link.download = `conversation-${id}.${link.dataset.format}`;
  }
  menu.showPopover();
  const [place, size] = [button.getBoundingClientRect(), menu.getBoundingClientRect()];
  menu.style.left = `${Math.max(8, Math.min(place.right - size.width, innerWidth - size.width - 8))}px`;
  menu.style.top = `${Math.max(8, Math.min(place.bottom + 4, innerHeight - size.height - 8))}px`;
  menu.querySelector("button").focus();
}

function openDialog(dialog) {
  const title = dialog.querySelector("input[name=title]");
  if (title) title.value = chosen.title;
  const name = dialog.querySelector("[data-name]");
  if (name) name.textContent = chosen.title || _("Untitled conversation");
  dialog.showModal();
  title?.select();
}

function closeAll() {
  if (menu?.matches(":popover-open")) menu.hidePopover();
  for (const dialog of dialogs) dialog.close();
}

document.addEventListener(
  "click",
  (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const more = target?.closest(".more");
    const opener = target?.closest("[data-open]");
    const deletion = target?.closest("a#delete");
    if (more) openMenu(more);
    else if (opener) {
      menu.hidePopover();
      openDialog(document.getElementById(opener.dataset.open));
    } else if (deletion) {
      event.preventDefault();
      chosen = { ...deletion.dataset, address: location.href };
      openDialog(dialogs.find((dialog) => dialog.id === "delete-dialog"));
    } else if (target?.closest("[data-close]")) target.closest("dialog").close();
  },
  { capture: true },
);

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!("live" in form.dataset)) return;
  event.preventDefault();
  if (form.elements.current) form.elements.current.value = current();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  // Not the property of the form, which is its field of this name.
  const address = form.getAttribute("action") ?? chosen.address;
  closeAll();
  show(address, { push: true, method: "POST", body });
});

document.addEventListener("keydown", (event) => {
  if (!isShortcut(event) || !["j", "k"].includes(event.key)) return;
  const links = [...document.querySelectorAll(".row a")];
  const place = links.findIndex((link) => link.hasAttribute("aria-current"));
  const link = links[place < 0 ? 0 : place + (event.key === "j" ? 1 : -1)];
  link?.focus();
  link?.click();
});

/** Shows what has changed, unless the person is in the middle of something. */
function refresh() {
  const isBusy = isLoading() || document.querySelector(":popover-open, dialog[open], .dropdown[open]");
  if (!isBusy) show(location.href, { quiet: true, only: ["section#list", "section#reader"] });
}

prepare(document);
for (const button of filter.querySelectorAll("button")) button.hidden = true; // the list is filtered while typing
follow(refresh);
