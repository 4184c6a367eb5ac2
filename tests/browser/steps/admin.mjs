// Steps on the pages of the account, of administration, and of the API reference.

import assert from "node:assert/strict";

/** Changes the password, and signs out another browser and then all of them. */
export async function account({ page, url, values, audit }) {
  await page.goto(`${url}/account`);
  const findings = await audit();
  const usage = await page.locator(".quota").allInnerTexts();
  await page.locator("#password").fill(values.password);
  await page.locator("#new_password").fill(values.changed);
  await page.locator("#repeated").fill(values.changed);
  await page.getByRole("button", { name: "Change password" }).click();
  await page.locator(".done", { hasText: "Your password is changed." }).waitFor();
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "Export" }).click();
  const file = (await download).suggestedFilename();
  await page.getByRole("button", { name: "Sign out everywhere" }).click();
  await page.waitForURL(/\/sign-in/);
  await page.locator("#name").fill(values.name);
  await page.locator("#password").fill(values.changed);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  // Signing in leads back. The page of the account names the person.
  await page.locator(".site nav a", { hasText: "Settings" }).click();
  await page.locator(".subnav a", { hasText: "Account" }).click();
  await page.getByRole("heading", { level: 1, name: values.name }).waitFor();
  return { usage, file, findings, links: await page.locator(".subnav a").allInnerTexts() };
}

/** Deletes the library, and then the account; each only after the name was typed. */
export async function deletion({ page, url, values, audit }) {
  await page.goto(`${url}/account`);
  await page.getByRole("link", { name: "Delete …" }).click();
  const findings = await audit();
  await page.locator("#name").fill("someone else");
  await page.getByRole("button", { name: "Delete permanently" }).click();
  const refused = await page.locator(".error").innerText();
  await page.locator("#name").fill(values);
  await page.getByRole("button", { name: "Delete permanently" }).click();
  await page.locator(".done", { hasText: "Your library is deleted." }).waitFor();
  const items = await page.locator(".quota").nth(1).innerText();
  await page.goto(`${url}/account/delete`);
  await page.getByLabel("My account with everything").check();
  await page.locator("#name").fill(values);
  await page.getByRole("button", { name: "Delete permanently" }).click();
  await page.locator(".done", { hasText: "Your account is deleted." }).waitFor();
  return { refused, items, findings };
}

/** Invites someone, who opens the link once; then changes their role, quotas and access, and deletes them. */
export async function users({ page, url, context, audit, values }) {
  await page.goto(`${url}/admin`);
  await page.getByRole("link", { name: "Users", exact: true }).click();
  await page.locator("#invite-name").fill(values.name);
  await page.locator("#invite-role").selectOption("reader");
  await page.getByRole("button", { name: "Create invitation" }).click();
  const link = await page.locator("#new-link").inputValue();
  await page.locator("[data-copy=new-link]").click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), link);
  const findings = await audit();
  await page.goto(`${url}/admin/users`);
  assert.equal(await page.locator("#new-link").count(), 0);
  assert.match(await page.locator(".rows").innerText(), new RegExp(values.name));
  await accept(context, url, link, values);
  await page.goto(`${url}/admin/users`);
  await page.getByRole("link", { name: values.name }).click();
  findings.push(...(await audit()));
  await page.getByLabel("admin can also manage this server").check();
  await page.getByRole("button", { name: "Change role" }).click();
  await page.locator(".done", { hasText: "The role is changed." }).waitFor();
  await page.locator("#max_items").fill("12 apples");
  await page.getByRole("button", { name: "Save quotas" }).click();
  const refused = await page.locator(".error").innerText();
  await page.locator("#max_items").fill("12");
  await page.getByRole("button", { name: "Save quotas" }).click();
  await page.locator(".done", { hasText: "The quotas are changed." }).waitFor();
  const quota = await page.locator("#max_items").inputValue();
  await page.getByRole("button", { name: "Create a password reset link" }).click();
  const reset = await page.locator("#new-link").inputValue();
  await page.getByRole("button", { name: "Disable" }).click();
  await page.locator(".state.bad", { hasText: "disabled" }).waitFor();
  await page.getByRole("button", { name: "Enable" }).click();
  await page.locator(".state.good", { hasText: "active" }).waitFor();
  await page.locator("#confirmation").fill(values.name);
  await page.getByLabel("Also delete the library").check();
  await page.getByRole("button", { name: "Delete user" }).click();
  await page.locator(".done", { hasText: "The user is deleted." }).waitFor();
  return { refused, quota, reset, findings, names: await page.locator("td.name").allInnerTexts() };
}

async function accept(context, url, link, { name, password }) {
  const browser = await context.browser().newContext();
  try {
    const page = await browser.newPage();
    await page.goto(link);
    await page.locator("#password").fill(password);
    await page.locator("#repeated").fill(password);
    await page.getByRole("button", { name: "Create account" }).click();
    await page.locator(".site nav a", { hasText: "Settings" }).waitFor({ state: "attached" });
    const response = await page.goto(`${url}/admin`);
    assert.equal(response.status(), 403);
  } finally {
    await browser.close();
  }
}

/** Invites someone and revokes the invitation, with the keyboard alone. */
export async function keyboard({ page, url }) {
  await page.goto(`${url}/admin/users`);
  await tabTo(page, "invite-name");
  await page.keyboard.type("keyboard");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator("#new-link").waitFor();
  const before = await page.locator(".rows > li").count();
  await page.getByRole("button", { name: "Revoke" }).first().focus();
  await page.keyboard.press("Enter");
  await page.locator(".done", { hasText: "not valid any more" }).waitFor();
  return { before, after: await page.locator(".rows > li").count() };
}

async function tabTo(page, id) {
  for (let presses = 0; presses < 60; presses += 1) {
    await page.keyboard.press("Tab");
    if ((await page.evaluate(() => document.activeElement?.id)) === id) return;
  }
  assert.fail(`${id} cannot be reached with the tab key`);
}

/** Filters the audit log and pages through it. */
export async function log({ page, url, audit }) {
  await page.goto(`${url}/admin/audit`);
  const findings = await audit();
  await page.locator("#audit-action").fill("key.create");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.waitForURL(/action=key.create/);
  const first = await page.locator(".audit tbody tr").count();
  await page.getByRole("link", { name: "Older events" }).click();
  await page.waitForURL(/offset=/);
  const second = await page.locator(".audit tbody tr").count();
  await page.getByRole("link", { name: "Newest events" }).click();
  await page.locator("#audit-user").fill("nobody-here");
  await page.getByRole("button", { name: "Apply" }).click();
  return { first, second, findings, missing: await page.locator(".error").innerText() };
}

/** Returns the status of each page, and whether it links to administration. */
export async function statuses({ page, url, values }) {
  const seen = {};
  for (const path of values) {
    const response = await page.goto(url + path);
    seen[path] = [response.status(), await page.locator('a[href="/admin"]').count()];
  }
  return seen;
}

/** Opens addresses with hostile names: they are rejected, and nothing of them is run. */
export async function rejected({ page, url, values }) {
  for (const path of values) {
    const [response] = await Promise.all([page.waitForResponse((one) => one.url().startsWith(url)), page.goto(url + path).catch(() => {})]);
    assert.ok(response.status() >= 400, path);
    assert.equal(await page.evaluate(() => globalThis.xss), undefined, path);
  }
}

/** Finds an operation in the contents, fills in its form, sends it and reads the answer; then a second and a third. */
export async function reference({ page, url, audit, expectStatus }) {
  expectStatus(400);
  await page.goto(`${url}/docs`);
  await page.locator("#find-operation").fill("search_know");
  const listed = await page.locator(".contents li:not([hidden])").allInnerTexts();
  await page.locator("#find-operation").fill("");
  const search = await open(page, "search_knowledge");
  await search.locator("textarea").fill('{"query": "galleon"}');
  const found = await send(search);
  const findings = await audit("#search_knowledge");
  await search.locator("textarea").fill('{"query": ');
  const refused = await send(search);
  const list = await open(page, "list_items");
  await list.locator("[name=source]").selectOption("notes");
  await list.locator("[name=limit]").fill("1");
  const items = await send(list);
  const uri = JSON.parse(items.body).items[0].uri;
  const read = await open(page, "read_item");
  await read.locator("[name=source]").selectOption("notes");
  await read.locator("[name=id]").fill(uri.split("://")[1]);
  const item = await send(read);
  const create = await open(page, "create_key");
  await create.locator("textarea").fill('{"name": "made here"}');
  const created = await send(create);
  const exported = await open(page, "export_library");
  await exported.getByRole("button", { name: "Send" }).click();
  await exported.getByRole("link", { name: /Download florilegium-export.zip/ }).waitFor();
  await exported.getByRole("button", { name: "Close" }).click();
  assert.equal(await exported.locator(".trial").count(), 0);
  return { listed, found, refused, items, item, created, findings };
}

async function open(page, id) {
  const section = page.locator(`#${id}`);
  await section.getByRole("button", { name: "Try it" }).click();
  await section.locator("form.try").waitFor();
  return section;
}

async function send(section) {
  await section.getByRole("button", { name: "Send" }).click();
  await section.locator(".status").waitFor();
  await section.locator(".answer > pre:not(:empty)").waitFor();
  const body = await section.locator(".answer > pre").innerText();
  await section.locator(".answer summary", { hasText: "Headers" }).click();
  const headers = await section.locator(".answer .headers").innerText();
  const status = await section.locator(".status strong").innerText();
  const command = await section.locator(".answer .command").textContent();
  await section.locator(".answer").evaluate((answer) => answer.replaceChildren());
  return { status, headers, command, body };
}

/** Measures the whole reference, and audits some of its operations: a template makes all of them. */
export async function referenceLook({ page, url, audit }) {
  await page.goto(`${url}/docs`);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  await page.evaluate(() => document.querySelectorAll(".operation:nth-of-type(n + 3)").forEach((one) => one.remove()));
  await page.evaluate(() => document.querySelectorAll(".contents li:nth-of-type(n + 3)").forEach((one) => one.remove()));
  return { overflow, findings: await audit() };
}

/** Reads the reference without signing in, or without a script. */
export async function readable({ page, url }) {
  await page.goto(`${url}/docs`);
  return {
    operations: await page.locator(".operation").count(),
    links: await page.locator(".contents li a").count(),
    buttons: await page.getByRole("button", { name: "Try it" }).count(),
    note: (await page.locator(".note").allInnerTexts()).join(" "),
  };
}
