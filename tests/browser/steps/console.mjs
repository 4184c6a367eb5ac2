// Steps that several pages share.

/** Returns what people read on pages. */
export async function texts({ page, url, values }) {
  const found = [];
  for (const path of values) {
    await page.goto(url + path);
    found.push(await page.locator("main").innerText());
  }
  return found;
}
