// Steps on the page of the message bus.

import assert from "node:assert/strict";
import { send } from "./history.mjs";

const found = (page) => page.locator(".found").count();
const counter = (page) => page.locator("#counter").innerText();
const isInView = (page) =>
  page.waitForFunction(() => {
    const message = document.querySelector(".message.current");
    if (!message) return false;
    const { top, bottom } = message.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  });

/** Searches all threads and one, goes through the messages, and closes the search. */
export async function search({ page, url, values, audit }) {
  await page.goto(`${url}/threads`);
  const threads = await page.locator(".row-title").allInnerTexts();
  await page.locator("#message-box").pressSequentially("signals", { delay: 30 });
  await page.locator(".found").first().waitFor();
  const all = await found(page);
  const first = await page.locator(".found").first().innerText();
  const marked = await page.locator(".found mark").first().innerText();
  const findings = await audit();
  const counts = [await counter(page)];
  await page.locator(".found a").nth(1).click();
  await isInView(page);
  counts.push(await counter(page));
  assert.match(page.url(), /\/threads\/[\w-]+\?q=signals/);
  await page.locator("a#next").click();
  await page.locator("#counter", { hasText: "3 of" }).waitFor();
  await isInView(page);
  await page.locator("a#previous").click();
  await page.locator("#counter", { hasText: "2 of" }).waitFor();
  await page.locator("#reader").click();
  await page.keyboard.press("n");
  await page.locator("#counter", { hasText: "3 of" }).waitFor();
  await page.keyboard.press("p");
  await page.locator("#counter", { hasText: "2 of" }).waitFor();
  findings.push(...(await audit()));
  await page.keyboard.press("Escape");
  await page.locator("#results").waitFor({ state: "hidden" });
  assert.doesNotMatch(page.url(), /q=/);
  await page.goto(`${url}/threads/${values.thread}`);
  assert.equal(await page.locator("input[value=thread]").isChecked(), true);
  await page.locator("#message-box").fill("signals");
  await page.locator(".found").first().waitFor();
  const here = await found(page);
  await page.getByText("All threads", { exact: true }).click();
  await page.waitForURL(/scope=all/);
  await page.waitForFunction((count) => document.querySelectorAll(".found").length > count, here);
  await page.locator("#message-box").fill("nothing like this");
  await page.locator("#results .empty").waitFor();
  return { threads, all, here, first, marked, counts, findings };
}

/** Reads a thread with a human-only message. */
export async function read({ page, url, values }) {
  await page.goto(`${url}/threads/${values.thread}`);
  return { labelled: await page.locator(".message:has(.label)").allInnerTexts(), first: await page.locator(".message").first().innerText() };
}

/** A message that an agent posts appears in the open thread. */
export async function live({ page, url, values }) {
  await page.goto(`${url}/history`); // has the token that REST needs
  const token = await page.locator("[name=csrf_token]").first().inputValue();
  await page.goto(`${url}/threads/${values.thread}`);
  await page.evaluate((value) => document.body.append(Object.assign(document.createElement("input"), { type: "hidden", name: "csrf_token", value })), token);
  await page.waitForTimeout(500);
  await send(page, "POST", `/api/threads/${values.thread}/messages`, { author: "Cursor", content: "just posted" });
  await page.locator(".message", { hasText: "just posted" }).waitFor();
}

/** Searches and jumps without a script. */
export async function plain({ page, url, values }) {
  await page.goto(`${url}/threads/${values.thread}`);
  await page.locator("#message-box").fill("signals");
  await page.locator("#message-box").press("Enter");
  await page.waitForURL(/q=signals/);
  const here = await counter(page);
  await page.locator("a#next").click();
  await page.waitForURL(/at=/);
  const current = await page.locator(".message.current").innerText();
  const count = await counter(page);
  await page.locator("a#close").click();
  await page.waitForURL(`${url}/threads/${values.thread}`);
  return { here, current, count };
}

export async function listed({ page, url }) {
  await page.goto(`${url}/threads?q=signals`);
  return { threads: await page.locator(".row .row-title").allInnerTexts(), found: await found(page) };
}
