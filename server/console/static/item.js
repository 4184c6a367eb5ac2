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

// The recording: times in the text jump to it, and the passage that is being played is marked. The recording is that of
// another server, after the page was asked to play it, or a file of this device.

const lines = [...document.querySelectorAll(".line")];
const starts = lines.map((line) => Number(line.querySelector("[data-seconds]").dataset.seconds));
const follow = document.querySelector("#follow");
const device = document.querySelector("#device-file");

function mark() {
  const now = player.currentTime + 0.2;
  const next = starts.findIndex((start) => start > now);
  const line = lines[(next < 0 ? lines.length : next) - 1];
  const marked = document.querySelector(".line.playing");
  if (line === marked) return;
  marked?.classList.remove("playing");
  line?.classList.add("playing");
  if (line && follow.checked && !player.paused) {
    // The beginning of a long passage, below the player.
    line.scrollIntoView({ block: line.offsetHeight > innerHeight / 2 ? "start" : "center", behavior: "smooth" });
  }
}

function prepare() {
  player.hidden = false;
  document.querySelector("#follow-choice")?.removeAttribute("hidden");
  document.querySelector("#media").classList.add("is-open");
}

if (player) {
  if (player.src) prepare();
  if (lines.length) for (const name of ["timeupdate", "seeked"]) player.addEventListener(name, mark);
  player.addEventListener("error", () => document.querySelector("#player-error")?.removeAttribute("hidden"));
  document.addEventListener("click", (event) => {
    const time = event.target instanceof Element && event.target.closest("[data-seconds]");
    if (!time || !player.src) return;
    event.preventDefault();
    player.currentTime = Number(time.dataset.seconds);
    player.play();
  });
}

if (device) {
  for (const part of document.querySelectorAll(".device")) part.hidden = false;
  device.addEventListener("change", () => {
    if (!device.files.length) return;
    if (player.src.startsWith("blob:")) URL.revokeObjectURL(player.src);
    player.src = URL.createObjectURL(device.files[0]);
    prepare();
  });
}
