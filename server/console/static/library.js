// Selecting many items: everything on the page at once, a range with the shift key, and how many are selected.

const boxes = [...document.querySelectorAll("[data-item]")];
const all = document.querySelector("#select-all");
const bar = document.querySelector("#bulk");
let last = null;

function report() {
  const count = boxes.filter((box) => box.checked).length;
  bar.querySelector("output").textContent = count === 1 ? "1 selected" : `${count} selected`;
  bar.hidden = count === 0;
  all.checked = count === boxes.length;
  all.indeterminate = count > 0 && count < boxes.length;
}

if (all && bar) {
  all.closest("[hidden]")?.removeAttribute("hidden");
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    report();
  });
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
