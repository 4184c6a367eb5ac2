// Steps on the connect page.

import assert from "node:assert/strict";

const clipboard = (page) => page.evaluate(() => navigator.clipboard.readText());

/** Calls a tool as an MCP client with a key does, and returns the status. */
async function callTool(url, key, name, args) {
  const response = await fetch(`${url}/mcp`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": "2026-07-28",
      "Mcp-Method": "tools/call",
      "Mcp-Name": name,
      Authorization: `Bearer ${key}`,
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: {
        name,
        arguments: args,
        _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientCapabilities": {},
          "io.modelcontextprotocol/clientInfo": { name: "browser-test", version: "1" },
        },
      },
    }),
  });
  return response.status;
}

async function createKey(page, { name, rights, expires, profile, without = [] }) {
  await page.locator("#new[open], #new:not([open]) > summary").first().waitFor();
  if (!(await page.locator("#new[open]").count())) await page.locator("#new > summary").click();
  await page.locator("#key-name").fill(name);
  if (rights) await page.locator("#rights").selectOption(rights);
  if (expires) await page.locator("#expires").selectOption(expires);
  if (profile) await page.locator("#profile").selectOption(profile);
  for (const source of without) await page.getByLabel(source, { exact: true }).uncheck();
  await page.getByRole("button", { name: "Create key" }).click();
  await page.locator("#new-key").waitFor();
  return await page.locator("#new-key").inputValue();
}

/** Creates a key, uses it, sees what it read, and revokes it. */
export async function keyLifecycle({ page, url, values, audit }) {
  await page.goto(`${url}/connect?client=cursor`);
  const key = await createKey(page, { name: "Laptop", rights: "read", expires: "30", without: ["Media"] });
  const findings = await audit();
  await page.locator(".new-key [data-copy]").click();
  await page.locator(".new-key button", { hasText: "Copied" }).waitFor();
  assert.equal(await clipboard(page), key);
  const config = JSON.parse(await page.locator("#snippet-1").innerText());
  assert.equal(config.mcpServers.florilegium.headers.Authorization, `Bearer ${key}`);
  const statuses = [await callTool(url, key, "notes_get", { note_id: values.note }), await callTool(url, key, "knowledge_search", { query: "galleon" })];
  await page.goto(`${url}/connect`);
  const row = await page.locator("#keys .rows > li").first().innerText();
  assert.equal((await page.content()).includes(key), false);
  const calls = await page.locator("#activity table").first().locator("tbody tr").allInnerTexts();
  await page.getByRole("link", { name: values.title }).click();
  await page.locator("h1", { hasText: values.title }).waitFor();
  await page.goto(`${url}/connect`);
  await page.getByRole("button", { name: "Revoke the key Laptop" }).click();
  await page.getByText("The key is revoked.").waitFor();
  statuses.push(await callTool(url, key, "knowledge_search", { query: "galleon" }));
  return { statuses, row, calls, findings };
}

/** Chooses clients with the keyboard alone, copies what to paste, and looks at the links that install it. */
export async function setUp({ page, url }) {
  await page.goto(`${url}/connect`);
  const focusOn = async (text) => {
    for (let tab = 0; tab < 80; tab++) {
      if ((await page.evaluate(() => document.activeElement.textContent.trim())) === text) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`${text} cannot be reached with the keyboard`);
  };
  await focusOn("Cursor");
  await page.keyboard.press("Enter");
  await page.waitForURL(/client=cursor/);
  await page.locator("#snippet-1").waitFor();
  await focusOn("Copy");
  await page.keyboard.press("Enter");
  await page.locator("button", { hasText: "Copied" }).waitFor();
  const copied = JSON.parse(await clipboard(page));
  const cursor = new URL(await page.locator("#install").getAttribute("href"));
  await page.getByRole("link", { name: "VS Code" }).click();
  await page.waitForURL(/client=vscode/);
  await page.getByRole("link", { name: "API key", exact: true }).click();
  await page.waitForURL(/auth=key/);
  const vscode = new URL(await page.locator("#install").getAttribute("href"));
  await page.getByRole("link", { name: "ChatGPT" }).click();
  await page.getByText("connects from the internet").first().waitFor();
  return {
    copied,
    cursor: JSON.parse(atob(cursor.searchParams.get("config"))),
    vscode: JSON.parse(decodeURIComponent(vscode.search.slice(1))),
  };
}

/** Tests the connection, and returns the result of each hop. */
export async function testConnection({ page, url, audit }) {
  await page.goto(`${url}/connect?client=claude-code`);
  await page.getByRole("button", { name: "Test connection" }).click();
  await page.locator(".checks li").first().waitFor();
  const hops = await page.locator(".checks li").evaluateAll((rows) => rows.map((row) => [row.querySelector("strong").textContent, row.querySelector(".state").textContent]));
  return { hops, text: await page.locator("#test").innerText(), address: new URL(page.url()).pathname, findings: await audit() };
}

/** Disconnects an application. */
export async function disconnect({ page, url, values }) {
  await page.goto(`${url}/connect#applications`);
  const before = await page.locator("#applications").innerText();
  await page.getByRole("button", { name: `Disconnect ${values}` }).click();
  await page.getByText("The application is disconnected.").waitFor();
  return { before, after: await page.locator("#applications").innerText() };
}

/** Creates a key and tests the connection without a script. */
export async function plain({ page, url }) {
  await page.goto(`${url}/connect?client=codex&auth=key`);
  await page.locator("#key-name").fill("Plain");
  await page.getByRole("button", { name: "Create key" }).click();
  await page.waitForURL(/connect\/keys/);
  const key = await page.locator("#new-key").inputValue();
  await page.goto(`${url}/connect?client=codex`);
  await page.getByRole("button", { name: "Test connection" }).click();
  await page.waitForURL(/connect\/test/);
  return { status: await callTool(url, key, "knowledge_search", { query: "x" }), text: await page.locator("#test").innerText() };
}

/** Creates a key with a hostile name in the form, and shows it everywhere. */
export async function hostileKeys({ page, url, values }) {
  for (const name of values) {
    await page.goto(`${url}/connect`);
    const key = await createKey(page, { name });
    assert.equal(await callTool(url, key, "knowledge_search", { query: "x" }), 200);
  }
  await page.goto(`${url}/connect`);
  return { names: await page.locator("#keys .rows strong").allTextContents(), xss: await page.evaluate(() => globalThis.xss ?? null) };
}
