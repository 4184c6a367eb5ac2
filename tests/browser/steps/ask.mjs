// Steps on the page of questions.

import assert from "node:assert/strict";

const answered = (page) => page.locator("#latest .facts span").first().waitFor();

async function picture(page, values, name) {
  if (values.folder) await page.screenshot({ path: `${values.folder}/${name}.png`, fullPage: true });
}

/** Asks a question with the keyboard, asks another one, and follows a citation to its passage. */
export async function ask({ page, url, values, audit }) {
  await page.goto(`${url}/ask`);
  const findings = await audit();
  await picture(page, values, `${values.name}-empty`);
  await page.locator("#question").fill(values.questions[0]);
  await page.locator("#question").press("Enter");
  await answered(page);
  const first = await page.locator("#latest").innerText();
  assert.match(page.url(), /\/ask\?conversation=/);
  findings.push(...(await audit()));
  await picture(page, values, values.name);
  await page.locator("#question").fill(values.questions[1]);
  await page.locator("#ask button").first().click();
  await page.locator("#latest h2", { hasText: values.questions[1] }).waitFor();
  await answered(page);
  const second = await page.locator("#latest").innerText();
  await page.reload();
  const turns = await page.locator(".turn").allInnerTexts();
  const earlier = await page.locator("aside .rows a").allInnerTexts();
  const scripts = await page.locator("#turns script, #turns img, #turns b").count();
  const hrefs = await page.locator("#turns a").evaluateAll((links) => links.map((link) => new URL(link.href).pathname));
  findings.push(...(await audit()));
  const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  await page.locator(".turn").first().locator(".cite").first().click();
  await page.locator("mark").first().waitFor();
  const marked = await page.locator("mark").allInnerTexts();
  return { findings, first, second, turns, earlier, scripts, hrefs, width, marked, item: new URL(page.url()).pathname };
}

/** Stops an answer that does not end. */
export async function stop({ page, url, values }) {
  await page.goto(`${url}/ask`);
  await page.locator("#question").fill(values.question);
  await page.locator("#question").press("Enter");
  await page.locator("#latest .cite").first().waitFor();
  await page.locator("#stop").click();
  await page.locator("#latest .facts", { hasText: "Stopped" }).waitFor();
  const text = await page.locator("#latest").innerText();
  await page.waitForURL(/conversation=/);
  // It is stored meanwhile.
  do await page.goto(page.url());
  while (!(await page.locator(".turn .facts", { hasText: "Stopped" }).count()));
  return [text, await page.locator(".turn").innerText()];
}

/** The form without a script. */
export async function withoutScript({ page, url, values, audit }) {
  await page.goto(`${url}/ask`);
  await page.locator("#question").fill(values.question);
  await page.locator("#ask button").first().click();
  await page.locator("#latest").waitFor();
  return { text: await page.locator("#latest").innerText(), findings: values.axe ? await audit() : [] };
}

/** The form of the model. */
export async function model({ page, url, values, audit }) {
  await page.goto(`${url}/ask/model`);
  const findings = await audit();
  await picture(page, values, `${values.name}-model`);
  return findings;
}
