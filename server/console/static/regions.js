// Pages with a list next to a text. The server renders everything: links and forms inside the layout request the page that
// they lead to, and its regions replace those that differ. What has not changed stays as it is, with focus and scroll
// position. The address of the page is its whole state.

import { _ } from "./messages.js";
import { localizeTimes } from "./page.js";

const EVENTS = "/api/v1/conversations/events";
const REFRESH_MS = 1000;
const RETRY_MS = 30_000;
const UNREACHABLE = _("The server cannot be reached. Check the connection and try again.");
export const DEBOUNCE_MS = 300;
export const layout = document.querySelector("div#layout");
const notice = document.querySelector("div#notice");
const sidebar = document.querySelector("details#sidebar");

/** Makes `current` equal to `next`. Children with the same id are the same. */
function merge(current, next) {
  if (current.isEqualNode(next)) return;
  for (const { name } of [...current.attributes]) if (!next.hasAttribute(name)) current.removeAttribute(name);
  for (const { name, value } of next.attributes) if (current.getAttribute(name) !== value) current.setAttribute(name, value);
  const known = new Map([...current.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = current.firstChild;
  for (const node of [...next.childNodes]) {
    const same = node.id ? known.get(node.id) : place?.isEqualNode(node) ? place : null;
    if (!same || same.nodeName !== node.nodeName) {
      current.insertBefore(node, place);
    } else {
      if (same === place) place = place.nextSibling;
      else current.insertBefore(same, place);
      if (node.id) merge(same, node);
    }
  }
  while (place) {
    const following = place.nextSibling;
    place.remove();
    place = following;
  }
}

/** The element that has the focus, found again after its row was replaced. */
function focusedRow() {
  const id = document.activeElement?.closest(".row, .found")?.id;
  return () => id && document.activeElement === document.body && document.getElementById(id)?.querySelector("a")?.focus({ preventScroll: true });
}

/**
 * Shows pages below `prefix` in this one. `regions` are the selectors of what can change, `prepare` is called with each
 * new region before it is shown, and `shown` afterwards.
 */
export function createNavigation({ prefix, regions, prepare = () => {}, shown = () => {} }) {
  let request = new AbortController();

  function apply(page, selectors) {
    const restoreFocus = focusedRow();
    for (const selector of selectors) {
      const [current, next] = [document.querySelector(selector), page.querySelector(selector)];
      if (!current || !next) continue;
      localizeTimes(next);
      prepare(next);
      merge(current, next);
    }
    layout.className = page.querySelector("div#layout").className;
    document.title = page.title;
    restoreFocus();
  }

  function report(text) {
    const retry = Object.assign(document.createElement("button"), { className: "secondary small", textContent: _("Try again") });
    retry.addEventListener("click", () => show(location.href));
    const message = Object.assign(document.createElement("p"), { className: "error" });
    message.setAttribute("role", "alert");
    message.append(`${text} `, retry);
    (notice ?? layout).prepend(message);
  }

  /** Requests a page and shows it. `quiet` does not show that it is loading, and reports no error. */
  async function show(url, { push = false, quiet = false, only = regions, ...options } = {}) {
    request.abort();
    const own = (request = new AbortController());
    if (!quiet) layout.setAttribute("aria-busy", "true");
    for (const error of document.querySelectorAll("main > .error, #notice > .error")) error.remove();
    try {
      const response = await fetch(url, { signal: own.signal, headers: { Accept: "text/html" }, ...options });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (own !== request) return;
      if (!page.querySelector("div#layout")) {
        if (response.ok) location.assign(url);
        else report(page.querySelector("main p")?.textContent ?? UNREACHABLE);
        return;
      }
      apply(page, only);
      const address = withoutReport(response.url) + new URL(url, location.href).hash;
      if (address !== location.href) history[push ? "pushState" : "replaceState"](null, "", address);
      shown({ push, quiet });
    } catch (error) {
      if (error.name !== "AbortError" && !quiet) report(UNREACHABLE);
    } finally {
      if (own === request) layout.removeAttribute("aria-busy");
    }
  }

  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("#layout a, #notice a");
    const isPlain = !event.defaultPrevented && event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || !(link.pathname === prefix || link.pathname.startsWith(`${prefix}/`))) return;
    event.preventDefault();
    show(link.href, { push: link.href !== location.href });
  });
  addEventListener("popstate", () => show(location.href));
  return { show, isLoading: () => layout.hasAttribute("aria-busy") };
}

/** The address of a page without what was done just now: it is shown once. */
function withoutReport(address) {
  const url = new URL(address);
  for (const name of ["done", "of", "confirm"]) url.searchParams.delete(name);
  return url.href;
}

/** Calls `refresh` after changes, at most once a second, and not while the page is hidden. */
export function follow(refresh) {
  let source = null;
  let timer = null;
  let last = 0;

  function soon() {
    timer ??= setTimeout(() => {
      timer = null;
      last = Date.now();
      refresh();
    }, Math.max(0, last + REFRESH_MS - Date.now()));
  }

  function open() {
    if (source || document.hidden) return;
    source = new EventSource(EVENTS);
    source.addEventListener("changed", soon);
    source.addEventListener("error", () => {
      if (source?.readyState !== EventSource.CLOSED) return; // the browser connects again
      close();
      setTimeout(open, RETRY_MS);
    });
  }

  function close() {
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    open();
    soon();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

// Whether the sidebar is open is remembered, except on a phone, where it is the only thing on the page.
if (sidebar) {
  if (matchMedia("(min-width: 48.01rem)").matches) sidebar.open = localStorage.getItem("sidebar") !== "closed";
  sidebar.addEventListener("toggle", () => localStorage.setItem("sidebar", sidebar.open ? "open" : "closed"));
}
