// Steps on the history page.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

const titles = (page) => page.locator(".row-title").allInnerTexts();
const settled = (page) => page.locator("#layout:not([aria-busy])").waitFor();
const row = (page, title) => page.locator(".row", { hasText: title }).first();

/** Sends a REST request as the person who is signed in. */
export async function send(page, method, path, body) {
  const status = await page.evaluate(
    async ([method, path, body]) => {
      const headers = { "Content-Type": "application/json", "X-CSRF-Token": document.querySelector("[name=csrf_token]").value };
      return (await fetch(path, { method, headers, body: JSON.stringify(body) })).status;
    },
    [method, path, body],
  );
  assert.ok(status < 300, `${method} ${path}: ${status}`);
}

/** Opens a conversation from the sidebar, collapses the sidebar, and reloads the page. */
export async function sidebar({ page, url, audit }) {
  await page.goto(`${url}/history`);
  const groups = await page.locator(".date-group h2").allTextContents();
  const first = await row(page, "Voyage").innerText();
  const findings = await audit();
  await row(page, "Voyage").locator("a").click();
  await page.locator(".reader-title", { hasText: "Voyage" }).waitFor();
  assert.match(page.url(), /\/history\/[\w-]+$/);
  const current = await page.locator(".row a[aria-current=page] .row-title").allInnerTexts();
  const reader = await page.locator("#reader").innerText();
  findings.push(...(await audit()));
  await page.locator("#sidebar > summary").click();
  assert.equal(await page.locator("#list").isVisible(), false);
  await page.reload();
  assert.equal(await page.locator("#list").isVisible(), false);
  await page.locator("#sidebar > summary").click();
  assert.equal(await page.locator("#list").isVisible(), true);
  await page.goBack();
  await page.locator(".reader .empty").waitFor();
  return { groups, first, current, reader, findings };
}

/** Filters by title, id and namespace. Several keys make one request, 300 ms after the last of them. */
export async function filter({ page, url, values }) {
  await page.goto(`${url}/history`);
  await settled(page);
  const requests = [];
  page.on("request", (request) => request.url().includes("q=") && requests.push(request.url()));
  await page.locator("#filter-box").pressSequentially("voya", { delay: 30 });
  await page.waitForURL(/q=voya$/);
  const byTitle = await titles(page);
  const sent = requests.length;
  await page.locator("#filter-box").fill(values.id.slice(0, 13));
  await page.waitForURL(new RegExp(`q=${values.id.slice(0, 13)}$`));
  const byId = await titles(page);
  await page.locator("#filter-box").fill("no such title");
  await page.locator("#list .empty").waitFor();
  const empty = await page.locator("#list .empty").innerText();
  await page.locator("#list .empty a").click();
  await row(page, "Voyage").waitFor();
  await page.locator("#filter-box").fill("");
  await page.waitForURL(`${url}/history`);
  await page.locator("#filter-namespace").selectOption("work");
  await page.waitForURL(/namespace=work/);
  const byNamespace = await titles(page);
  await page.reload();
  return { byTitle, sent, byId, empty, byNamespace, reloaded: await titles(page) };
}

/** New conversations and messages appear without a reload; an idle page requests nothing. */
export async function live({ page, url }) {
  await page.goto(`${url}/history`);
  await settled(page);
  await page.waitForTimeout(500);
  const requests = [];
  page.on("request", (request) => request.url().includes("/history") && requests.push(request.url()));
  await page.waitForTimeout(1500);
  const idle = requests.length;
  const id = `live-${Date.now()}`;
  await send(page, "POST", "/conversations", { id, title: "Just recorded", messages: [{ role: "user", content: "first words" }] });
  await row(page, "Just recorded").waitFor();
  await row(page, "Just recorded").locator("a").click();
  await page.locator(".message", { hasText: "first words" }).waitFor();
  await page.evaluate(() => (document.querySelector(".message").isKept = true));
  await send(page, "POST", `/conversations/${id}/messages`, { role: "assistant", content: "second words" });
  await page.locator(".message", { hasText: "second words" }).waitFor();
  const kept = await page.evaluate(() => document.querySelector(".message").isKept);
  const facts = await row(page, "Just recorded").innerText();
  await page.goBack();
  await page.locator("#reader .empty").waitFor();
  await send(page, "DELETE", `/conversations/${id}?purge=true`);
  await row(page, "Just recorded").waitFor({ state: "detached" });
  return { idle, kept, facts };
}

async function openMenu(page, title) {
  await row(page, title).hover();
  await row(page, title).locator(".more").click();
  await page.locator("#menu:popover-open").waitFor();
}

/** Renames, pins, archives and deletes a conversation from the menu of its row, and undoes it. */
export async function manage({ page, url, audit }) {
  await page.goto(`${url}/history`);
  await openMenu(page, "Errands");
  const findings = await audit();
  await page.getByRole("button", { name: "Rename…" }).click();
  findings.push(...(await audit()));
  await page.locator("#new-title").fill("Chores");
  await page.locator("#rename-dialog").getByRole("button", { name: "Save" }).click();
  await row(page, "Chores").waitFor();
  await openMenu(page, "Chores");
  await page.locator("#menu").getByRole("button", { name: "Pin" }).click();
  await page.locator("#group-pinned .row", { hasText: "Chores" }).waitFor();
  await openMenu(page, "Chores");
  await page.locator("#menu").getByRole("button", { name: "Unpin" }).click();
  await page.locator("#group-pinned").waitFor({ state: "detached" });
  await openMenu(page, "Chores");
  await page.locator("#menu").getByRole("button", { name: "Archive" }).click();
  await page.locator("#notice", { hasText: "archived" }).waitFor();
  await page.getByRole("link", { name: "Archived" }).click();
  await page.waitForURL(/archived=1/);
  const archived = await titles(page);
  await page.goBack();
  await settled(page);
  await row(page, "Chores").waitFor({ state: "detached" });
  await page.goto(`${url}/history?archived=1`);
  await row(page, "Chores").locator("a").click();
  await page.getByRole("button", { name: "Unarchive" }).click();
  await page.locator("#notice", { hasText: "back in the list" }).waitFor();
  await page.goto(`${url}/history`);
  await openMenu(page, "Chores");
  await page.getByRole("button", { name: "Delete…" }).click();
  const question = await page.locator("#delete-dialog").innerText();
  findings.push(...(await audit()));
  await page.locator("#delete-dialog").getByRole("button", { name: "Cancel" }).click();
  assert.equal(await row(page, "Chores").count(), 1);
  await row(page, "Chores").locator("a").click();
  await page.locator("a#delete").click();
  await page.locator("#delete-dialog").getByRole("button", { name: "Delete" }).click();
  await row(page, "Chores").waitFor({ state: "detached" });
  findings.push(...(await audit()));
  await page.getByRole("button", { name: "Undo" }).click();
  await page.locator(".reader-title", { hasText: "Chores" }).waitFor();
  await row(page, "Chores").waitFor();
  return { archived, question, findings };
}

/** Downloads a conversation in all formats. */
export async function downloads({ page, url, values }) {
  const files = {};
  await page.goto(`${url}/history/${values.id}`);
  for (const name of ["JSON", "Text", "Markdown"]) {
    await page.locator(".dropdown summary", { hasText: "Download" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator(".dropdown[open]").getByRole("link", { name }).click()]);
    files[download.suggestedFilename()] = (await readFile(await download.path(), "utf8")).slice(0, 2000);
    await page.locator(".dropdown summary", { hasText: "Download" }).click();
  }
  return files;
}

/** Shows more and more rows, and then those of the next page. */
export async function paging({ page, url }) {
  await page.goto(`${url}/history`);
  const counts = [await page.locator(".row").count()];
  while (await page.locator("a#more").count()) {
    await page.locator("a#more").click();
    await page.waitForFunction((before) => document.querySelectorAll(".row").length > before, counts.at(-1));
    counts.push(await page.locator(".row").count());
  }
  return { counts, distinct: new Set(await titles(page)).size };
}

/** Shows that it is loading, and reports a server that fails. */
export async function failures({ page, url }) {
  await page.goto(`${url}/history`);
  await settled(page);
  page.removeAllListeners("console"); // the browser reports the failure too
  let fails = true;
  let release;
  await page.route(/\/history\//, async (route) => {
    await new Promise((resolve) => (release = resolve));
    if (fails) await route.abort();
    else await route.continue();
  });
  await row(page, "Voyage").locator("a").click();
  await page.locator("#layout[aria-busy=true]").waitFor();
  release();
  await page.locator("#notice [role=alert]").waitFor();
  const message = await page.locator("#notice [role=alert]").innerText();
  fails = false;
  await page.unroute(/\/history\//);
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator("#notice [role=alert]").waitFor({ state: "detached" });
  await page.goto(`${url}/history/absent`);
  return { message, absent: await page.locator("#reader [role=alert]").innerText() };
}

/** Goes through the conversations with the keyboard only. */
export async function keyboard({ page, url }) {
  await page.goto(`${url}/history`);
  await settled(page);
  await page.keyboard.press("j");
  await page.locator(".row a[aria-current]").waitFor();
  const opened = [await page.locator(".reader-title").innerText()];
  await page.keyboard.press("j");
  await page.waitForFunction((title) => document.querySelector(".reader-title").innerText !== title, opened[0]);
  opened.push(await page.locator(".reader-title").innerText());
  await page.keyboard.press("k");
  await page.waitForFunction((title) => document.querySelector(".reader-title").innerText === title, opened[0]);
  await page.locator(".row a[aria-current]").focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator("#menu:popover-open").waitFor();
  const focused = await page.evaluate(() => document.activeElement.textContent);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#menu:popover-open").count(), 0);
  return { opened, listed: (await titles(page)).slice(0, 2), focused };
}

/** Filters, reads, renames, deletes and restores without a script. */
export async function plain({ page, url }) {
  await page.goto(`${url}/history`);
  await page.locator("#filter-box").fill("garden");
  await page.locator("#filter-box").press("Enter");
  await page.waitForURL(/q=garden/);
  await row(page, "Garden").locator("a").click();
  await page.locator(".message", { hasText: "tulips" }).waitFor();
  await page.locator(".dropdown summary", { hasText: "Rename" }).click();
  await page.locator("#title").fill("Garden in spring");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator(".reader-title", { hasText: "Garden in spring" }).waitFor();
  await page.getByRole("button", { name: "Pin" }).click();
  await page.locator("#group-pinned").waitFor();
  await page.locator("a#delete").click();
  await page.locator("form.warning").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.locator(".reader-title", { hasText: "Garden in spring" }).waitFor();
  return { titles: await titles(page) };
}

/** On a phone, the list and the conversation are two pages. */
export async function phone({ page, url }) {
  await page.goto(`${url}/history`);
  assert.equal(await page.locator("#reader").isVisible(), false);
  await row(page, "Voyage").locator("a").tap();
  await page.locator(".reader-title", { hasText: "Voyage" }).waitFor();
  assert.equal(await page.locator("#list").isVisible(), false);
  await page.locator(".back a").tap();
  await row(page, "Voyage").waitFor();
  assert.equal(await page.locator("#reader").isVisible(), false);
}

export async function listed({ page, url }) {
  await page.goto(`${url}/history`);
  return await titles(page);
}
