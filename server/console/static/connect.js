// Runs the connection test without leaving the page: it takes a few seconds.

import { _ } from "./messages.js";

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.id !== "test-form") return;
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  button.textContent = _("Testing…");
  try {
    const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const problem = page.querySelector("main > .error") ?? (response.ok ? null : page.querySelector("main p"));
    const result = page.querySelector("#test");
    if (result) document.querySelector("#test").replaceWith(result);
    if (problem) document.querySelector("#test").append(problem);
  } catch {
    button.disabled = false;
    button.textContent = _("Test connection");
  }
});
