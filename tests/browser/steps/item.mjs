// Steps on the page of an item and on the library page.

import assert from "node:assert/strict";

/** Opens a conversation at a match, jumps between the matches, and copies a message. */
export async function matches({ page, url, values }) {
  await page.goto(`${url}${values}?find=galleon`);
  const output = page.locator("#matches output");
  await page.locator("#matches:not([hidden])").waitFor();
  const texts = [await output.textContent()];
  for (const key of ["n", "n", "n", "p"]) {
    await page.keyboard.press(key);
    texts.push(await output.textContent());
  }
  await page.locator(".message").first().hover();
  await page.locator(".message button.copy").first().click();
  await page.locator(".message button.copy", { hasText: "Copied" }).waitFor();
  return { texts, copied: await page.evaluate(() => navigator.clipboard.readText()) };
}

/** Follows a link to a passage: it is on the screen. */
export async function passage({ page, url, values }) {
  await page.goto(url + values);
  const mark = page.locator("#passage");
  await mark.waitFor();
  await page.waitForFunction(() => {
    const { top, bottom } = document.querySelector("#passage").getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  });
  return await mark.textContent();
}

/** Opens a PDF at a passage, and turns its pages. */
export async function pdfPages({ page, url, values, audit }) {
  const image = page.locator("#pages img");
  const shown = async () => {
    await page.waitForFunction(() => document.querySelector("#pages img").naturalWidth > 0);
    const { width, right } = await image.evaluate((one) => one.getBoundingClientRect());
    assert.ok(width > 100 && right <= (await page.evaluate(() => innerWidth)));
    return image.getAttribute("alt");
  };
  await page.goto(url + values.path);
  const texts = [await shown()];
  const findings = await audit();
  if (values.folder) await page.screenshot({ path: `${values.folder}/pdf-${values.name}.png`, fullPage: true });
  await page.getByRole("link", { name: "Previous page" }).click();
  await page.waitForURL(/page=1/);
  texts.push(await shown());
  return { texts, findings };
}

/** Creates, changes, tags, deletes and restores a note with the keyboard and the mouse. */
export async function lifecycle({ page, url, audit }) {
  await page.goto(`${url}/new`);
  const findings = await audit();
  await page.locator("#title").fill("Voyage");
  await page.locator("#content").fill("A *galleon* left.\n\n- one\n- two");
  await page.locator("#tags").fill("sea, north");
  await page.getByRole("button", { name: "Create" }).click();
  await page.locator("#item em", { hasText: "galleon" }).waitFor();
  findings.push(...(await audit()));
  await page.keyboard.press("e");
  await page.locator("#title").fill("Journey");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("h1", { hasText: "Journey" }).waitFor();
  await page.locator("#add-tag").fill("winter");
  await page.locator("#add-tag").press("Enter");
  await page.locator("a.tag", { hasText: "winter" }).waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.locator("h1", { hasText: "Journey" }).waitFor();
  return { findings, text: await page.locator("#item").innerText() };
}

/** Selects several items and tags them. */
export async function bulk({ page, url, audit }) {
  await page.goto(`${url}/library?source=notes`);
  await page.locator("[data-item]").first().waitFor();
  assert.equal(await page.locator("#bulk").isVisible(), false);
  await page.locator("[data-item]").first().check();
  await page.locator("[data-item]").nth(2).click({ modifiers: ["Shift"] });
  const selected = await page.locator("#bulk output").textContent();
  const findings = await audit();
  await page.locator("#bulk-tag").fill("chosen");
  await page.getByRole("button", { name: "Add tags" }).click();
  await page.goto(`${url}/library?tag=chosen`);
  return { selected, findings, tagged: await page.locator("td.title > a").count() };
}

/** Opens every page of a hostile library. Scripts, dialogs and foreign requests are reported by the driver. */
export async function hostile({ page, url, values }) {
  for (const path of values) {
    await page.goto(url + path);
    await page.locator("main").waitFor();
    assert.equal(await page.evaluate(() => globalThis.xss), undefined, path);
    const bad = await page.evaluate(() =>
      [...document.querySelectorAll("main *:not(#bookmarklet)")].filter((element) =>
        ["SCRIPT", "IFRAME", "IMG", "OBJECT", "EMBED", "BASE", "LINK", "META", "STYLE", "SVG"].includes(element.tagName.toUpperCase()) ||
        [...element.attributes].some(({ name, value }) => name.startsWith("on") || (["href", "src", "action", "formaction"].includes(name) && /^\s*(javascript|vbscript|data):/i.test(value))),
      ).map((element) => element.outerHTML.slice(0, 200)),
    );
    assert.deepEqual(bad, [], path);
  }
}
