// Measures how soon the search page shows the first result, for `bench/console.py`. All times are taken in the page.

/** Types each query and calls the API with it; returns the milliseconds of both. */
export async function searches({ page, url, values }) {
  await page.goto(url);
  await page.locator("#search-box").waitFor();
  const samples = [];
  for (const [number, query] of values.queries.entries()) {
    const first = number % 2 ? await type(page, query, values) : null;
    const api_ms = await page.evaluate(callApi, { query, ...values.arguments });
    samples.push({ first_result_ms: first ?? (await type(page, query, values)), api_ms });
  }
  return samples;
}

/** Returns the time between the end of the debounce after the last keystroke and the first result of the query. */
async function type(page, query, { debounceMs }) {
  await page.locator("#search-box").fill("");
  await page.waitForFunction(() => !location.search.includes("q="));
  await page.evaluate(watch, query);
  // The last character is a keystroke of its own. More of them could each start a search on a busy machine.
  await page.locator("#search-box").fill(query.slice(0, -1));
  await page.keyboard.press(query.at(-1));
  const elapsed = await page.evaluate(() => globalThis.shown);
  return elapsed - debounceMs;
}

/** Sets `shown`, which resolves when the page has a result, or says that there is none, for exactly this query. */
function watch(query) {
  const box = document.querySelector("#search-box");
  let typed = 0;
  box.oninput = () => (typed = performance.now());
  globalThis.shown = new Promise((resolve) => {
    const observer = new MutationObserver(() => {
      const isCurrent = box.value === query && new URLSearchParams(location.search).get("q") === query;
      if (!isCurrent || !document.querySelector("#results :is(.hit h2, .empty)")) return;
      observer.disconnect();
      resolve(performance.now() - typed);
    });
    observer.observe(document.querySelector("#layout"), { childList: true });
  });
}

async function callApi(body) {
  const started = performance.now();
  const response = await fetch("/api/v1/search", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  await response.json();
  if (!response.ok) throw new Error(`the API answered ${response.status}`);
  return performance.now() - started;
}
