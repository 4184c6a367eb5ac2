// Steps on the frame of all pages: menu, palette, theme, language, and the console as an app.

import assert from "node:assert/strict";

const active = (page) => page.evaluate(() => document.activeElement.id);
const options = (page) => page.locator("#palette-list [role=option] span").allInnerTexts();
const shot = (page, values, name) => values?.folder && page.screenshot({ path: `${values.folder}/${name}.png` });

/** Goes through the menu and its tabs. On a phone, the menu has to be opened first. */
export async function menu({ page, url, values, audit }) {
  await page.goto(url);
  const seen = { findings: [], links: [], tabs: {} };
  const button = page.locator("#open-menu");
  const isPhone = await button.isVisible();
  const open = async () => {
    if (!isPhone) return;
    await button.click();
    await page.locator("#menu-list a").first().waitFor();
  };
  if (isPhone) assert.equal(await page.locator("#menu-list a").first().isVisible(), false);
  await open();
  seen.links = await page.locator("#menu-list a").allInnerTexts();
  await shot(page, values, `menu-${isPhone ? "phone" : "desktop"}`);
  if (!values?.isPlain) seen.findings.push(...(await audit()));
  for (const [index, text] of seen.links.entries()) {
    if (index) await open();
    await page.locator("#menu-list a", { hasText: text }).click();
    await page.locator("#menu-list a[aria-current]").waitFor({ state: "attached" });
    assert.equal(await page.locator("#menu-list a[aria-current]").textContent(), text);
    seen.tabs[text] = await page.locator(".subnav a").allInnerTexts();
    if (!values?.isPlain) seen.findings.push(...(await audit()));
  }
  return seen;
}

/** Chooses a theme and looks at the colours of this page and the next. */
export async function theme({ page, url }) {
  await page.goto(url);
  const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const colours = [await colour()];
  for (const value of ["dark", "light", ""]) {
    await page.locator("#theme").selectOption(value);
    await page.waitForFunction((value) => (document.documentElement.dataset.theme ?? "") === value, value);
    await page.goto(`${url}/library`);
    colours.push(await colour());
  }
  return colours;
}

/** Chooses a language. Without a script, the form has a button. */
export async function language({ page, url, values }) {
  await page.goto(`${url}/library`);
  await page.locator("#language").selectOption(values);
  const button = page.locator("#preferences button");
  if (await button.isVisible()) await button.click();
  await page.locator(`html[lang="${values}"]`).waitFor();
  return { path: new URL(page.url()).pathname, heading: await page.locator("h1").first().innerText() };
}

/** Finds an item, a tag, a page and a command with the keyboard alone. */
export async function palette({ page, url, values, audit }) {
  // The tags arrive while the person is typing already.
  await page.route(/\/palette\?q=$/, async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 600));
    await route.continue();
  });
  await page.goto(`${url}/library`);
  const seen = {};
  await page.locator("#open-palette").focus();
  await page.keyboard.press("Enter");
  await page.locator("#palette[open]").waitFor();
  assert.equal(await active(page), "palette-box");
  seen.first = await options(page);
  await page.keyboard.type("galle");
  await page.locator("#palette-list li", { hasText: "Voyage" }).waitFor();
  seen.items = await options(page);
  await shot(page, values, "palette");
  seen.findings = await audit("#palette");
  const selected = await page.locator("#palette-box").getAttribute("aria-activedescendant");
  assert.equal(await page.locator(`#${selected}`).getAttribute("aria-selected"), "true");
  await page.keyboard.press("Escape");
  await page.locator("#palette[open]").waitFor({ state: "hidden" });
  assert.equal(await active(page), "open-palette");

  await page.keyboard.press("Control+k");
  await page.keyboard.type("sea");
  await page.locator("#palette-list li", { hasText: "Tag" }).first().waitFor();
  seen.tag = await options(page);
  await page.unrouteAll({ behavior: "wait" });
  await page.locator("#palette-box").fill("thre");
  seen.page = await options(page);
  await page.locator("#palette-box").fill("galle");
  await page.locator("#palette-list li", { hasText: "Voyage" }).waitFor();
  const index = (await options(page)).indexOf("Voyage");
  for (let n = 0; n < index; n++) await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/items\/notes\//);
  seen.opened = await page.locator("h1").innerText();

  await page.keyboard.press("Control+k");
  await page.keyboard.type("dark");
  await page.keyboard.press("Enter");
  await page.locator("html[data-theme=dark]").waitFor();
  await page.waitForLoadState();
  await page.keyboard.press("?");
  await page.locator("#help[open]").waitFor();
  seen.findings.push(...(await audit("#help")));
  return seen;
}

/** Loses the connection: the next page says so, and nothing that was read before is shown. */
export async function offline({ page, context, url, values }) {
  await page.goto(`${url}/library`);
  await page.evaluate(async () => {
    await navigator.serviceWorker.ready;
    if (!navigator.serviceWorker.controller) await new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", resolve));
  });
  const kept = await page.evaluate(async () => {
    const names = await caches.keys();
    const requests = await Promise.all(names.map(async (name) => (await caches.open(name)).keys()));
    return requests.flat().map((request) => new URL(request.url).pathname.split("/").at(-1));
  });
  await context.setOffline(true);
  await page.goto(`${url}/library`);
  const text = await page.locator("main").innerText();
  await shot(page, values, "offline");
  const styled = await page.evaluate(() => getComputedStyle(document.querySelector("main")).maxWidth);
  await context.setOffline(false);
  await page.reload();
  return { kept, text, styled, back: await page.locator("h1").first().innerText() };
}

/** Saves a page of another site with the bookmarklet: opens its form, and saves it. */
export async function bookmarklet({ page, context, url, values }) {
  const code = decodeURIComponent(values.code.replace("javascript:", ""));
  const other = await context.newPage();
  await other.goto(values.site);
  if (values.selects) await other.locator("#quote").selectText();
  const opened = context.waitForEvent("page");
  await other.evaluate(code);
  const form = await opened;
  if (values.cookie) {
    await form.waitForURL(/\/share\/review/);
    await shot(form, values, "share-signed-out");
    const text = await form.locator("main").innerText();
    await context.addCookies([values.cookie]);
    await form.getByRole("button", { name: "Continue" }).click();
    await form.locator("#content").waitFor();
    return { text, content: await form.locator("#content").inputValue() };
  }
  await form.locator("#content").waitFor();
  const seen = { title: await form.locator("#title").inputValue(), content: await form.locator("#content").inputValue() };
  await shot(form, values, "share");
  seen.before = await count(page, url);
  await form.getByRole("button", { name: /^(Create|Save)/ }).first().click();
  await form.waitForURL(/\/items\/notes\//);
  return { ...seen, after: await count(page, url), link: await form.locator(".text a").last().getAttribute("href") };
}

async function count(page, url) {
  await page.goto(`${url}/library?source=notes`);
  return page.locator("[data-item]").count();
}

/** Looks at pages in a language that is written from right to left. */
export async function rightToLeft({ page, context, url, values, audit }) {
  await context.addCookies([{ name: "florilegium-language", value: "ar", url }]);
  const findings = {};
  for (const path of values.paths) {
    await page.goto(url + path);
    const seen = await page.evaluate(() => ({
      direction: getComputedStyle(document.body).direction,
      overflow: document.documentElement.scrollWidth - innerWidth,
      brand: document.querySelector(".brand").getBoundingClientRect().left > innerWidth / 2,
    }));
    await shot(page, values, `rtl${path.replace(/\W/g, "-")}`);
    findings[path] = [
      ...(await audit()),
      ...(seen.direction === "rtl" && seen.brand ? [] : ["not from right to left"]),
      ...(seen.overflow > 0 ? [`${seen.overflow} px wider than the screen`] : []),
    ];
  }
  return findings;
}
