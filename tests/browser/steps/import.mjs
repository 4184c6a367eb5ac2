// Steps on the import page.

import assert from "node:assert/strict";
import { mkdtemp, mkdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const queueText = (page) => page.locator("#queue li").allInnerTexts();
const results = (page) => page.locator("#imports .result").allTextContents();

/** Reloads the page until it shows what is expected. Waits in between, because loading it takes time from the server. */
async function reloadUntil(page, isReached) {
  while (!(await isReached())) {
    await page.waitForTimeout(200);
    await page.reload();
  }
}

/** Drops files on the page as a person does with the mouse. */
async function dropFiles(page, files) {
  const data = await page.evaluateHandle((list) => {
    const transfer = new DataTransfer();
    for (const [name, text] of list) transfer.items.add(new File([text], name));
    return transfer;
  }, files);
  await page.dispatchEvent("#drop", "dragover", { dataTransfer: data });
  await page.locator("#drop.over").waitFor();
  await page.dispatchEvent("#drop", "drop", { dataTransfer: data });
}

/** Drops several files, tries them, imports them, and looks at results, problems and history. */
export async function dragAndDrop({ page, url, values, audit }) {
  await page.goto(`${url}/import`);
  await page.getByRole("heading", { name: "No imports yet" }).waitFor();
  await page.getByRole("button", { name: "Import" }).click();
  await page.getByText("Choose a file first.").waitFor();
  await dropFiles(page, values);
  assert.equal(await page.locator("#queue li").count(), values.length);
  await page.getByRole("button", { name: "Dry run" }).click();
  await page.locator("#imports li[data-state=done], #imports li[data-state=failed]").nth(values.length - 1).waitFor();
  const tried = await queueText(page);
  const findings = await audit();
  await page.locator("#upload button:not(:disabled)").first().waitFor();
  await page.getByRole("button", { name: "Import" }).click();
  await page.locator("#imports li[data-state=done], #imports li[data-state=failed]").nth(2 * values.length - 1).waitFor();
  await page.locator("#upload button:not(:disabled)").first().waitFor();
  const imported = await queueText(page);
  const problems = await page.locator("#imports .problems td").allInnerTexts();
  const announced = await page.locator("#upload-status").textContent();
  await page.reload();
  return { tried, imported, problems, announced, findings, history: await results(page) };
}

/** Chooses a folder: it is one import, and its notes find each other. */
export async function folder({ page, url }) {
  const vault = join(await mkdtemp(join(tmpdir(), "vault-")), "Käse");
  await mkdir(join(vault, "deep"), { recursive: true });
  await writeFile(join(vault, "Gouda.md"), "A *gouda*, see [[Brie]].");
  await writeFile(join(vault, "deep", "Brie.md"), "A brie.");
  await writeFile(join(vault, "deep", "Talk.srt"), "1\n00:00:01,000 --> 00:00:02,000\nA raclette.\n");
  await writeFile(join(vault, ".DS_Store"), "x");
  await writeFile(join(vault, "cheese.xyz"), "x");
  await page.goto(`${url}/import`);
  await page.locator("#folder").setInputFiles(vault);
  const chosen = await queueText(page);
  await page.getByRole("button", { name: "Import" }).click();
  await page.locator("#queue li.finished").nth(1).waitFor();
  const leftOut = await page.locator("#left-out").textContent();
  await page.goto(`${url}/?q=raclette`);
  assert.equal(await page.locator(".hit").count(), 1);
  await page.goto(`${url}/?q=gouda`);
  await page.locator(".hit h2 a").first().click();
  await page.getByRole("link", { name: "Brie" }).first().click();
  await page.locator("h1", { hasText: "Brie" }).waitFor();
  return { chosen, leftOut, linked: await page.locator("h2", { hasText: "Linked from" }).locator("+ ul").innerText() };
}

/** Uploads with the keyboard alone; the progress is reported while the import runs, and it can be cancelled elsewhere. */
export async function keyboard({ page, url, values }) {
  await page.goto(`${url}/import`);
  await page.locator("#drop.active").waitFor();
  // On a busy machine the first press may come before the browser is ready to open a dialog.
  let chooser = null;
  for (let attempt = 0; chooser === null && attempt < 3; attempt += 1) {
    const opened = page.waitForEvent("filechooser", { timeout: 5_000 }).catch(() => null);
    await page.locator("#files").focus();
    await page.keyboard.press("Space");
    chooser = await opened;
  }
  await chooser.setFiles({ name: values.name, mimeType: "text/plain", buffer: Buffer.from(values.text) });
  const seen = page.evaluate(
    () =>
      new Promise((resolve) => {
        const texts = new Set();
        new MutationObserver(() => {
          const row = document.querySelector("#queue li");
          const bar = row?.querySelector("progress");
          if (bar && !bar.hidden) texts.add(row.querySelector(".hint").textContent);
          if (row?.classList.contains("finished")) resolve([...texts]);
        }).observe(document.querySelector("#queue"), { subtree: true, childList: true, attributes: true, characterData: true });
      }),
  );
  while ((await page.evaluate(() => document.activeElement.value)) !== "false") await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  return { progress: await seen, history: await results(page) };
}

/** Uploads one file without a script. */
export async function plain({ page, url, values }) {
  await page.goto(`${url}/import`);
  await page.locator("#files").setInputFiles({ name: values.name, mimeType: "text/plain", buffer: Buffer.from(values.text) });
  await page.getByRole("button", { name: "Import" }).click();
  await page.waitForURL(/job=/);
  // Browsers without scripts reload the page by themselves; this one only pretends to be one.
  await reloadUntil(page, async () => (await page.locator("#imports li[data-state=done]").count()) > 0);
  return { results: await results(page), open: await page.locator("#imports details[open] .counts td").allInnerTexts() };
}

/** Removes a chosen file, and uploads one that is refused. */
export async function refused({ page, url }) {
  await page.goto(`${url}/import`);
  await dropFiles(page, [["a.md", "# A"], ["large.md", "x".repeat(5000)]]);
  await page.getByRole("button", { name: "Remove a.md" }).click();
  await page.route(/api\/v1\/import\?/, (route) => route.fulfill({ status: 200, json: { error: { message: "the body is larger than 1024 bytes" } } }));
  await page.getByRole("button", { name: "Import" }).click();
  await page.locator("#queue .failed").waitFor();
  return await queueText(page);
}

/** Chooses files with hostile names and uploads one of them. The page shows the names as text. */
export async function hostileNames({ page, url, values }) {
  await page.goto(`${url}/import`);
  await dropFiles(page, values.map((name) => [name, "\0unsupported"]));
  const shown = await page.locator("#queue li p").allTextContents();
  const elements = await page.evaluate(() => [...document.querySelectorAll("#queue *")].map((one) => one.tagName));
  for (const remove of (await page.locator("#queue button").all()).reverse().slice(0, -1)) await remove.click();
  await page.getByRole("button", { name: "Import" }).click();
  await page.locator("#queue .failed").waitFor();
  return { shown, elements: [...new Set(elements)].sort(), xss: await page.evaluate(() => globalThis.xss ?? null) };
}

/** Follows a folder, pauses and resumes it, and stops. */
export async function follow({ page, url, values, audit }) {
  await page.goto(`${url}/import`);
  await page.locator("#location").fill("relative/path");
  await page.locator("#location").press("Enter");
  await page.locator("#import-error:not([hidden])").waitFor();
  const problem = await page.locator("#import-error").textContent();
  await page.locator("#location").fill(values);
  await page.locator("#location").press("Enter");
  await page.locator("#follows .rows strong", { hasText: values }).waitFor();
  await reloadUntil(page, async () => (await page.locator("#follows [data-state=current]").count()) > 0);
  const row = await page.locator("#follows .rows li").first().innerText();
  const findings = await audit();
  await page.getByRole("button", { name: `Pause: ${values}` }).click();
  await page.locator("#follows [data-state=paused]").waitFor();
  await page.getByRole("button", { name: `Resume: ${values}` }).click();
  await page.locator("#follows [data-state=current]").waitFor();
  await page.getByRole("button", { name: `Stop following ${values}` }).click();
  await page.locator("#follows .rows").waitFor({ state: "detached" });
  await page.goto(`${url}/?q=steep`);
  return { problem, row, findings, kept: await page.locator(".hit").count() };
}

/** Settles the conflict of each file: keeps the edits of one, and uses the file of the other. */
export async function conflicts({ page, url, values, audit }) {
  await page.goto(`${url}/import`);
  await reloadUntil(page, async () => (await page.locator("#follows .follow-problem").count()) >= 2);
  const findings = await audit();
  const problems = await page.locator("#follows .follow-problem p").allInnerTexts();
  for (const [file, button] of values) {
    const problem = page.locator("#follows .follow-problem", { hasText: file });
    await problem.getByRole("button", { name: button }).click();
    await page.waitForLoadState();
    await problem.waitFor({ state: "detached" });
  }
  return { problems, findings };
}
