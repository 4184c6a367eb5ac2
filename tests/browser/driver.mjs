// Drives one Chromium for all tests. A line of JSON on the standard input names a function of a file in `steps`; it runs
// in a browser context of its own, and the answer is a line on the standard output.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const { packages, path, args } = JSON.parse(process.argv[2]);
const require = createRequire(`${packages}/`);
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");
const browser = await chromium.launch({ executablePath: path, args });

/** Collects what must not happen on any page: errors, and requests to other hosts. */
function watch(page, url, problems, expectedStatuses, expectedHosts) {
  page.on("console", (message) => {
    // Chromium also reports the status of a page itself, such as that of a form that was refused.
    const status = /^Failed to load resource: .* status of (\d+)/.exec(message.text())?.[1];
    const isExpected = status && (message.location().url === page.url() || expectedStatuses.has(status));
    if (message.type() === "error" && !isExpected) problems.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("dialog", async (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("request", (request) => {
    const address = request.url();
    const isOwn = [url, "data:", "blob:", ...expectedHosts].some((start) => address.startsWith(start));
    if (!isOwn) problems.push(`request: ${address}`);
  });
}

/** Returns the serious findings of axe-core on the current page, or in one part of it. */
async function audit(page, part) {
  await page.evaluate(require("node:fs").readFileSync(axe, "utf8"));
  const { violations } = await page.evaluate(
    (part) => globalThis.axe.run(part ?? document, { resultTypes: ["violations"] }),
    part,
  );
  const serious = violations.filter((one) => ["serious", "critical"].includes(one.impact));
  return serious.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
}

async function run({ file, step, url, cookie, values, options }) {
  // Service workers are for tests of them: they would hide requests from `page.route`.
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, serviceWorkers: "block", ...options });
  const problems = [];
  try {
    if (cookie) await context.addCookies([{ ...cookie, url }]);
    await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
    const page = await context.newPage();
    page.setDefaultTimeout(15_000);
    const expectedStatuses = new Set();
    const expectedHosts = new Set();
    watch(page, url, problems, expectedStatuses, expectedHosts);
    const { [step]: test } = await import(`./steps/${file}`);
    const result = await test({ page, context, url, values, audit: (part, frame) => audit(frame ?? page, part), expectStatus: (status) => expectedStatuses.add(String(status)), expectHost: (start) => expectedHosts.add(start) });
    return { result: result ?? null, problems };
  } finally {
    await context.close();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const answer = await run(request).catch((error) => ({ error: error.stack }));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
