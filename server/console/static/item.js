// The page of an item: jump between the matches, and play at a time.

import { _, ngettext } from "./messages.js";
import { isShortcut } from "./page.js";

const matches = [...document.querySelectorAll("#item mark")];
const bar = document.querySelector("#matches");
const player = document.querySelector("#player");
let current = matches.findIndex((mark) => mark.id === "passage" || mark.closest("#passage"));

function go(step) {
  if (!matches.length) return;
  matches[current]?.classList.remove("current-match");
  current = current < 0 ? (step > 0 ? 0 : matches.length - 1) : (current + step + matches.length) % matches.length;
  matches[current].classList.add("current-match");
  matches[current].scrollIntoView({ block: "center" });
  report();
}

function report() {
  bar.querySelector("output").textContent = current < 0 ? ngettext("%(num)s match", "%(num)s matches", matches.length) : _("%(part)s of %(all)s", { part: current + 1, all: matches.length });
}

if (bar && matches.length) {
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) go(button.value === "next" ? 1 : -1);
  });
  report();
}

document.addEventListener("keydown", (event) => {
  if (!isShortcut(event)) return;
  if (event.key === "n") go(1);
  else if (event.key === "p" || event.key === "N") go(-1);
  else if (event.key === "e") document.querySelector("#edit")?.click();
});

document.addEventListener("click", (event) => {
  const time = event.target instanceof Element && event.target.closest("[data-seconds]");
  if (time && player) {
    player.currentTime = Number(time.dataset.seconds);
    player.play();
  }
});
