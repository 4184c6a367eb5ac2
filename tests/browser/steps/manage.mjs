// Walks through what changes many items: the library list, the tags, the editor, duplicates, and recordings.

/** Takes a picture if the run asks for one. */
async function shot(page, values, name) {
  if (values.pictures) await page.screenshot({ path: `${values.pictures}/${name}.png` });
}

async function fits(page) {
  return page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
}

/** Selects items, tags them, deletes all that match, and undoes both. */
export async function selection({ page, url, values, audit }) {
  await page.goto(`${url}/library?tag=inbox`);
  const seen = { findings: [] };
  await page.getByLabel("Select all items on this page").check();
  seen.selected = await page.locator("#bulk output").textContent();
  seen.fits = await fits(page);
  await shot(page, values, "selection");
  await page.getByLabel(/All \d+ items that match/).check();
  seen.findings.push(...(await audit()));
  await page.getByRole("button", { name: "Delete" }).click();
  seen.deleted = await page.getByRole("status").textContent();
  await shot(page, values, "deleted");
  await page.getByRole("button", { name: "Undo" }).click();
  seen.undone = await page.getByRole("status").textContent();
  await page.locator("[data-item]").first().check();
  await page.getByLabel("Tags", { exact: true }).fill("urgent");
  await page.getByRole("button", { name: "Add tags" }).click();
  await page.locator("[data-item]").first().check();
  await page.getByRole("button", { name: "Pin", exact: true }).click();
  seen.pinned = await page.locator(".pinned li").count();
  seen.findings.push(...(await audit()));
  await shot(page, values, "pinned");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    (async () => {
      await page.locator("[data-item]").first().check();
      await page.getByRole("button", { name: "Export" }).click();
    })(),
  ]);
  seen.file = download.suggestedFilename();
  return seen;
}

/** Renames a tag to one that exists, and undoes it. */
export async function tags({ page, url, values, audit }) {
  const seen = { findings: [] };
  await page.goto(`${url}/tags`);
  seen.fits = await fits(page);
  await shot(page, values, "tags");
  await page.getByLabel("Change the tag inbox").click();
  await page.getByLabel("New name").fill("log");
  await page.getByRole("button", { name: "Rename" }).click();
  seen.findings.push(...(await audit()));
  await shot(page, values, "merge-tags");
  await page.getByRole("button", { name: "Merge the tags" }).click();
  seen.merged = await page.getByRole("status").textContent();
  await page.getByRole("button", { name: "Undo" }).click();
  seen.left = await page.locator(".tag-rows td:first-child").allTextContents();
  seen.findings.push(...(await audit()));
  return seen;
}

/** Types Markdown and looks at its preview. */
export async function editor({ page, url, values, audit }) {
  const seen = { findings: [] };
  await page.goto(`${url}${values.path}`);
  const preview = page.locator("#preview");
  if (!(await preview.isVisible())) await page.getByRole("button", { name: "Preview" }).click();
  await preview.locator("p").first().waitFor();
  seen.isBeside = await page.locator("#content").isVisible();
  if (!seen.isBeside) await page.getByRole("button", { name: "Edit", exact: true }).click();
  await page.locator("#content").fill("# Plan\n\n- buy **rope**\n- <img src=x onerror=alert(1)>\n");
  if (!seen.isBeside) await page.getByRole("button", { name: "Preview" }).click();
  await preview.locator("strong").waitFor();
  seen.html = await preview.innerHTML();
  seen.fits = await fits(page);
  seen.findings.push(...(await audit()));
  await shot(page, values, "editor");
  return seen;
}

/** Finds duplicates, merges a group with both texts, and undoes it. */
export async function duplicates({ page, url, values, audit }) {
  const seen = { findings: [] };
  await page.goto(`${url}/library`);
  await page.getByRole("link", { name: "Find duplicates" }).click();
  seen.findings.push(...(await audit()));
  await page.getByRole("button", { name: "Look for duplicates" }).click();
  const group = page.locator(".duplicates").nth(1);
  await group.waitFor();
  seen.headings = await page.locator(".duplicates h2").allTextContents();
  seen.different = await group.locator("mark").allTextContents();
  seen.fits = await fits(page);
  seen.findings.push(...(await audit()));
  await shot(page, values, "duplicates");
  await group.getByLabel("Keep both texts").check();
  await group.getByRole("button", { name: "Merge" }).click();
  seen.left = await page.locator(".duplicates").count();
  await page.getByRole("button", { name: "Undo" }).click();
  seen.back = await page.locator(".duplicates").count();
  return seen;
}

/** Plays the recording of a transcript from its own server, after the page has named it, and then a file of this device. */
export async function recording({ page, url, values, audit, expectHost }) {
  const seen = { findings: [] };
  await page.goto(`${url}${values.path}`);
  seen.findings.push(...(await audit()));
  await shot(page, values, "recording-choice");
  // From here on, the other server may be requested.
  expectHost(values.origin);
  await page.getByRole("link", { name: `Play from ${values.host}` }).click();
  await page.locator("#player").waitFor();
  await page.getByRole("link", { name: "0:04", exact: true }).click();
  await page.locator(".line.playing", { hasText: "fourth second" }).waitFor();
  seen.jumped = await page.evaluate(() => Math.floor(document.querySelector("#player").currentTime) >= 4);
  await page.evaluate(() => { document.querySelector("#player").currentTime = 8.5; });
  await page.locator(".line.playing", { hasText: "eighth second" }).waitFor();
  seen.fits = await fits(page);
  seen.findings.push(...(await audit()));
  await shot(page, values, "recording");
  await page.goto(`${url}${values.path}?t=4`);
  await page.getByLabel("Play a file of this device").setInputFiles({ name: "talk.wav", mimeType: "audio/wav", buffer: Buffer.from(values.wav, "base64") });
  await page.getByRole("link", { name: "0:08", exact: true }).click();
  await page.locator(".line.playing", { hasText: "eighth second" }).waitFor();
  seen.isLocal = await page.evaluate(() => document.querySelector("#player").src.startsWith("blob:"));
  return seen;
}
