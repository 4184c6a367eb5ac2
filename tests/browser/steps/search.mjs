// Steps on the search page.

import assert from "node:assert/strict";

const titles = (page) => page.locator(".hit h2").allTextContents();

/** Types a query with the keyboard only, reads results next to the list, and opens one. */
export async function keyboard({ page, url, audit }) {
  await page.goto(url);
  await page.locator("#filters").waitFor();
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

/** Narrows the results with tabs and filters, and reloads: the address is the state. */
export async function filters({ page, url }) {
  await page.goto(`${url}/?q=galleon`);
  await page.locator(".tabs a", { hasText: "Media" }).click();
  await page.locator(".tabs a[aria-current]", { hasText: "Media" }).waitFor();
  const media = await titles(page);
  await page.goto(`${url}/?q=galleon`);
  await page.locator("#tag").fill("sea");
  await page.locator("#tag").blur();
  await page.waitForURL(/tag=sea/);
  const tagged = await titles(page);
  await page.reload();
  assert.equal(await page.locator("#tag").inputValue(), "sea");
  return { media, tagged, reloaded: await titles(page) };
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
