// Selecting many items: everything on the page at once, a range with the shift key, all that match the filters, and how
// many are selected. A page that shows a running change is loaded again until it has ended.

import { ngettext } from "./messages.js";

const boxes = [...document.querySelectorAll("[data-item]")];
const all = document.querySelector("#select-all");
const matching = document.querySelector("#select-matching");
const bar = document.querySelector("#bulk");
const RELOAD_MS = 2000;
let last = null;

function report() {
  const count = boxes.filter((box) => box.checked).length;
  const isAll = matching?.checked ?? false;
  bar.querySelector("output").textContent = isAll ? "" : ngettext("%(num)s selected", "%(num)s selected", count);
  bar.hidden = count === 0 && !isAll;
  all.checked = isAll || count === boxes.length;
  all.indeterminate = !isAll && count > 0 && count < boxes.length;
  // Offered once the whole page is selected.
  if (matching) matching.closest("label").hidden = !isAll && count < boxes.length;
  for (const box of boxes) box.disabled = isAll;
}

if (all && bar) {
  all.closest("[hidden]")?.removeAttribute("hidden");
  all.addEventListener("change", () => {
    if (matching) matching.checked = false;
    for (const box of boxes) box.checked = all.checked;
    report();
  });
  matching?.addEventListener("change", report);
  for (const box of boxes) {
    box.addEventListener("click", (event) => {
      if (event.shiftKey && last) {
        const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((a, b) => a - b);
        for (const between of boxes.slice(from, to + 1)) between.checked = box.checked;
      }
      last = box;
      report();
    });
  }
  report();
}

if (document.querySelector("[data-running]")) setTimeout(() => location.reload(), RELOAD_MS);
