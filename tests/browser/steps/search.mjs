// Steps on the search page.

import assert from "node:assert/strict";

const titles = (page) => page.locator(".hit h2").allTextContents();

/** Types a query with the keyboard only, reads results next to the list, and opens one. */
export async function keyboard({ page, url, audit }) {
  await page.goto(url);
  await page.locator("#results").waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("galleon", { delay: 20 });
  await page.locator(".hit h2").first().waitFor();
  await page.locator("mark").first().waitFor();
  const found = await titles(page);
  assert.match(page.url(), /[?&]q=galleon/);
  await page.keyboard.press("ArrowDown");
  await page.locator("#preview mark").first().waitFor();
  await page.keyboard.press("j");
  await page.locator(".hit.selected").nth(0).waitFor();
  assert.equal(await page.locator(".hit").nth(1).getAttribute("class"), "hit selected");
  const findings = await audit();
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/items\//);
  await page.locator("#passage, #item").first().waitFor();
  await page.goBack();
  await page.locator(".hit h2").first().waitFor();
  await page.keyboard.press("?");
  await page.locator("dialog[open]").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("dialog[open]").waitFor({ state: "hidden" });
  await page.keyboard.press("Control+k");
  assert.equal(await page.evaluate(() => document.activeElement.id), "palette-box");
  return { found, afterBack: await titles(page), findings };
}

/** Narrows the results with tabs and filters, opens one and returns to its place: the address is the state. */
export async function filters({ page, url, audit }) {
  await page.goto(`${url}/?q=galleon`);
  await page.locator(".tabs a", { hasText: "Media" }).click();
  await page.locator(".tabs a[aria-current]", { hasText: "Media" }).waitFor();
  const media = await titles(page);
  await page.goto(url);
  await page.locator("#search-box").fill("galleon");
  // The filters follow the results.
  await page.locator(".chips .chip", { hasText: "sea" }).click();
  await page.locator(".chip.active", { hasText: "sea" }).waitFor();
  assert.match(page.url(), /tag=sea/);
  const tagged = await titles(page);
  await page.reload();
  const reloaded = await titles(page);
  await page.locator(".hit h2 a").first().click();
  await page.waitForURL(/\/items\//);
  assert.equal(await page.locator("#search-box").inputValue(), "galleon");
  const findings = await audit();
  await page.getByText("Back to results").click();
  await page.waitForURL(/tag=sea#hit-1$/);
  await page.locator(".chip.active", { hasText: "sea" }).click();
  await page.locator(".chip.active").waitFor({ state: "detached" });
  const removed = await titles(page);
  await page.locator("#more-filters summary").click();
  return { media, tagged, reloaded, removed, findings: [...findings, ...(await audit())] };
}

/** Saves a search, and opens it from the start page. */
export async function saved({ page, url, audit }) {
  await page.goto(`${url}/?q=galleon&tag=sea`);
  await page.getByText("Save", { exact: true }).first().click();
  await page.getByLabel("Name of the search").fill("At sea");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The search is saved.").waitFor();
  await page.goto(url);
  const findings = await audit();
  await page.getByRole("link", { name: "At sea" }).click();
  await page.waitForURL(/q=galleon&tag=sea/);
  const opened = await titles(page);
  await page.getByRole("button", { name: "Delete the saved search At sea" }).click();
  await page.getByText("The saved search is deleted.").waitFor();
  return { opened, left: await page.locator(".saved").count(), findings };
}

/** Goes from the timeline of the library to the items of a month, of a day and of a tag. */
export async function timeline({ page, url, audit }) {
  await page.goto(`${url}/library`);
  await page.getByRole("link", { name: "Timeline" }).first().click();
  await page.waitForURL(/timeline/);
  const findings = await audit();
  await page.locator(".columns-chart a").last().click();
  await page.waitForURL(/created=\d{4}-\d\d$/);
  const month = await page.locator(".items td.title > a").count();
  await page.goBack();
  await page.locator(".calendar a").last().click();
  await page.waitForURL(/created=\d{4}-\d\d-\d\d$/);
  const day = await page.locator(".items td.title > a").count();
  await page.goBack();
  await page.locator(".tag-cloud a", { hasText: "log" }).click();
  await page.waitForURL(/tag=log/);
  return { month, day, tagged: await page.locator(".items td.title > a").count(), findings };
}

/** Types fast while the first answers are slow: only the last query may be shown. */
export async function stale({ page, url }) {
  await page.goto(url);
  let slow = 0;
  await page.route(/[?&]q=/, async (route) => {
    const first = slow++ === 0;
    if (first) await new Promise((resolve) => setTimeout(resolve, 1500));
    await route.continue().catch(() => {});
  });
  const box = page.locator("#search-box");
  await box.fill("frigate");
  await page.waitForTimeout(400);
  await box.fill("galleon");
  await page.locator(".hit h2").first().waitFor();
  await page.waitForTimeout(1500);
  return { titles: await titles(page), address: page.url() };
}

/** Searches without a script. */
export async function plain({ page, url }) {
  await page.goto(url);
  await page.locator("#search-box").fill("galleon");
  await page.locator("#search-box").press("Enter");
  await page.waitForURL(/q=galleon/);
  return { titles: await titles(page) };
}

/** Looks at pages on a phone or in the dark: nothing is wider than the screen, and nothing fails the audit. */
export async function look({ page, url, values, audit }) {
  const findings = {};
  for (const path of values) {
    await page.goto(url + path);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    const hidden = await page.evaluate(() =>
      [...document.querySelectorAll(".site nav a")]
        .filter((link) => link.getBoundingClientRect().left < 0 || link.getBoundingClientRect().right > innerWidth)
        .map((link) => link.textContent),
    );
    findings[path] = [
      ...(await audit()),
      ...(overflow > 0 ? [`${overflow} px wider than the screen`] : []),
      ...hidden.map((text) => `the menu does not show ${text}`),
    ];
  }
  return findings;
}
