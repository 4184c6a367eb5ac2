// Shows the page of the search tools in the reference host of MCP Apps: the official client negotiates the extension and
// reads the page, and `AppBridge` of @modelcontextprotocol/ext-apps talks to it through the two frames of a web host: a
// proxy of another origin, and in it the page, sandboxed (specification 2026-01-26, "Sandbox proxy").

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const PACKAGES = JSON.parse(process.argv[2]).packages;
const CONDITIONS = ["browser", "import", "module", "default"];
const SANDBOX = "http://sandbox.example";
const HOST_POLICY = `default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; connect-src 'self'; frame-src ${SANDBOX}`;
// What hosts must at least enforce for a resource without domains (specification 2026-01-26, "Host behavior"). The inner
// frame, which has its document from the proxy, inherits it.
const PAGE_POLICY = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self' data:; connect-src 'none'";
// Passes messages on, except its own.
const PROXY = `<!doctype html><html lang=en><title>Sandbox</title><style>html, body { margin: 0; height: 100% } iframe { width: 100%; height: 100%; border: 0 }</style>
<iframe id="page" title="App"></iframe>
<script>
const page = document.querySelector("#page");
const own = "ui/notifications/sandbox-";
addEventListener("message", ({ source, data }) => {
  if (source === parent && data.method === own + "resource-ready") {
    page.sandbox = data.params.sandbox;
    page.srcdoc = data.params.html;
  } else if (!data.method?.startsWith(own)) {
    if (source === parent) page.contentWindow.postMessage(data, "*");
    else if (source === page.contentWindow) parent.postMessage(data, "*");
  }
});
parent.postMessage({ jsonrpc: "2.0", method: own + "proxy-ready", params: {} }, "*");
</script>`;

function conditional(target) {
  if (typeof target === "string" || !target) return target;
  for (const name of CONDITIONS) if (name in target) return conditional(target[name]);
}

/** Returns the file of a package's module, as a bundler for browsers would. */
function moduleFile(specifier, from) {
  const [scope, name, ...rest] = specifier.startsWith("@") ? specifier.split("/") : ["", ...specifier.split("/")];
  const path = scope ? `${scope}/${name}` : name;
  let folder = dirname(from);
  while (!existsSync(join(folder, "node_modules", path)) && folder !== dirname(folder)) folder = dirname(folder);
  const root = join(folder, "node_modules", path);
  const { exports, module, main } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const key = rest.length ? `./${rest.join("/")}` : ".";
  const target = exports ? conditional(exports[key] ?? (key === "." ? exports : undefined)) : (module ?? main ?? "index.js");
  assert.ok(target, `${specifier} is not exported`);
  return resolve(root, target);
}

/** Returns a module whose imports are addresses of this host. Modules of Node are empty. */
function moduleText(file) {
  const address = (specifier) => {
    if (specifier.startsWith("node:")) return "/host/empty.js";
    return `/host/file${specifier.startsWith(".") ? resolve(dirname(file), specifier) : moduleFile(specifier, file)}`;
  };
  return readFileSync(file, "utf8").replace(/(\bfrom\s*|\bimport\s*\(?\s*)(["'])([@\w.][^"'\n]*)\2/g, (all, before, quote, specifier) => {
    return before + quote + address(specifier) + quote;
  });
}

async function serveHost(page, url, expectHost) {
  expectHost(SANDBOX);
  await page.route(`${SANDBOX}/`, (route) => route.fulfill({ contentType: "text/html", headers: { "Content-Security-Policy": PAGE_POLICY }, body: PROXY }));
  await page.route(`${url}/host/**`, (route) => {
    const path = new URL(route.request().url()).pathname.slice("/host".length);
    if (path === "/") return route.fulfill({ contentType: "text/html", headers: { "Content-Security-Policy": HOST_POLICY }, body: "<!doctype html><html lang=en><title>Host</title><h1>Host</h1><main></main>" });
    const body = path === "/empty.js" ? "export default {}" : moduleText(path.slice("/file".length));
    return route.fulfill({ contentType: "text/javascript", body });
  });
  await page.goto(`${url}/host/`);
  const file = (specifier) => `/host/file${moduleFile(specifier, `${PACKAGES}/../x`)}`;
  return { bridge: file("@modelcontextprotocol/ext-apps/app-bridge"), client: file("@modelcontextprotocol/client") };
}

/** Connects the official client, with or without the extension, and returns what it lists. */
async function connect({ page, url, values, expectHost }, hasApps = true) {
  const modules = await serveHost(page, url, expectHost);
  return page.evaluate(
    async ([modules, values, hasApps]) => {
      const { Client, StreamableHTTPClientTransport } = await import(modules.client);
      const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };
      const client = new Client({ name: "reference-host", version: "1" }, { capabilities: hasApps ? { extensions } : {} });
      const requestInit = { headers: { Authorization: values.authorization } };
      await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", location.href), { requestInit }));
      const { tools } = await client.listTools();
      globalThis.state = { client, tools, modules, links: [], sizes: [], calls: [] };
      return Object.fromEntries(tools.map((tool) => [tool.name, tool._meta ?? null]));
    },
    [modules, values, hasApps],
  );
}

/** Calls a tool and shows its result in the page that its metadata names. */
async function showTool(page, name, args, theme) {
  await page.evaluate(
    async ([name, args, theme, sandbox]) => {
      const { client, tools, modules, links, sizes, calls } = globalThis.state;
      const { AppBridge, PostMessageTransport } = await import(modules.bridge);
      const uri = tools.find((tool) => tool.name === name)._meta.ui.resourceUri;
      const { contents } = await client.readResource({ uri });
      const frame = Object.assign(document.createElement("iframe"), { title: "App", width: 700, height: 300 });
      // The proxy needs its origin; the page in it has none.
      frame.sandbox = "allow-scripts allow-same-origin";
      document.querySelector("main").replaceChildren(frame);
      const capabilities = { openLinks: {}, serverTools: {}, logging: {} };
      const bridge = new AppBridge(client, { name: "reference-host", version: "1" }, capabilities, { hostContext: { theme } });
      bridge.onopenlink = async ({ url }) => (links.push(url), {});
      bridge.onsizechange = ({ height }) => {
        sizes.push(height);
        frame.height = height;
      };
      const initialized = new Promise((done) => (bridge.oninitialized = done));
      bridge.addEventListener("sandboxready", () => bridge.sendSandboxResourceReady({ html: contents[0].text, sandbox: "allow-scripts", csp: contents[0]._meta.ui.csp }));
      await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
      frame.src = sandbox;
      await initialized;
      await bridge.sendToolInput({ arguments: args });
      const result = await client.callTool({ name, arguments: args });
      calls.push(result);
      await bridge.sendToolResult(result);
      globalThis.state.contents = contents;
    },
    [name, args, theme, `${SANDBOX}/`],
  );
  return page.frames().find((frame) => frame.parentFrame()?.parentFrame());
}

export async function metadata(test) {
  const withApps = await connect(test, true);
  const withoutApps = await connect(test, false);
  return { withApps, withoutApps };
}

/** Searches, filters, reads an item at its place, goes back, and opens it on the server. */
export async function results(test) {
  const { page, values, audit } = test;
  await connect(test);
  const app = await showTool(page, "knowledge_search", { query: values.query }, values.theme);
  await app.locator("#results li").first().waitFor();
  const titles = await app.locator("#results h2").allInnerTexts();
  const text = await app.locator("body").innerText();
  const elements = await app.locator("script, b, img, a").count();
  const findings = await audit(undefined, app);
  if (values.folder) await page.screenshot({ path: `${values.folder}/${values.name}-results.png`, fullPage: true });
  const chips = await app.locator("#filters button").allInnerTexts();
  await app.locator("#filters button", { hasText: "notes" }).click();
  await app.locator("#filters button[aria-pressed=true]", { hasText: "notes" }).waitFor();
  const filtered = await app.locator("#results .facts span:first-child").allInnerTexts();
  await app.locator("#filters button", { hasText: "All" }).click();
  await app.locator("#filters button[aria-pressed=true]", { hasText: "All" }).waitFor();
  await app.locator("#results h2 button", { hasText: values.title }).click();
  await app.locator("#item:not([hidden])").waitFor();
  const read = await app.locator("#text").innerText();
  const place = await app.locator("#text").evaluate((box) => {
    const first = box.querySelector("mark").getBoundingClientRect();
    return [box.scrollTop > 0, first.top >= box.getBoundingClientRect().top && first.bottom <= box.getBoundingClientRect().bottom];
  });
  findings.push(...(await audit(undefined, app)));
  if (values.folder) await page.screenshot({ path: `${values.folder}/${values.name}-item.png`, fullPage: true });
  await app.locator("#open").click();
  await page.waitForFunction(() => globalThis.state.links.length);
  await app.locator("#back").click();
  await app.locator("#list:not([hidden])").waitFor();
  const { links, sizes, contents } = await page.evaluate(() => globalThis.state);
  const reach = await app.evaluate(async () => {
    const attempts = [async () => parent.document.title, async () => top.document.title, async () => localStorage.length];
    return (await Promise.allSettled(attempts.map((attempt) => attempt()))).map((one) => one.status);
  });
  const scheme = await app.locator("html").evaluate((root) => root.style.colorScheme);
  return { titles, text, elements, findings, chips, filtered, read, place, links, sizes, reach, scheme, mimeType: contents[0].mimeType, meta: contents[0]._meta };
}

/** Shows an item that a model has read. */
export async function item(test) {
  const { page, values } = test;
  await connect(test);
  const app = await showTool(page, "knowledge_get", { uri: values.uri }, "light");
  await app.locator("#item:not([hidden])").waitFor();
  return { title: await app.locator("#title").innerText(), text: await app.locator("#text").innerText(), back: await app.locator("#back").isVisible() };
}
