// The form of an item: adds a part to a list. Without this script, each list has one empty part.

for (const button of document.querySelectorAll("[data-add]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const part = button.previousElementSibling.cloneNode(true);
    for (const field of [part, ...part.querySelectorAll("input")].filter((one) => one.name)) {
      field.name = field.name.replace(/\d+/, (number) => Number(number) + 1);
      field.ariaLabel = field.ariaLabel?.replace(/\d+$/, (number) => Number(number) + 1) ?? null;
      if (field.type === "checkbox") field.checked = false;
      else field.value = "";
    }
    button.before(part);
    (part.name ? part : part.querySelector("input")).focus();
  });
}
