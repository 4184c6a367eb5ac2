// Steps of two people who share a library.

/** Creates a group, invites someone, and shares the items with a tag. */
export async function invite({ page, url, audit, values }) {
  await page.goto(`${url}/sharing`);
  await page.getByLabel("New group").fill(values.group);
  await page.getByRole("button", { name: "Create" }).click();
  await page.locator(".done").waitFor();
  await page.getByLabel("Person").fill(values.person);
  await page.locator("#invite-role").selectOption("writer");
  await page.getByRole("button", { name: "Invite" }).click();
  await page.locator(".done", { hasText: "is invited" }).waitFor();
  const findings = await audit();
  if (values.picture) await page.screenshot({ path: `${values.picture}-group.png`, fullPage: true });
  await page.goto(`${url}/sharing?by=tag&value=${values.tag}`);
  await page.getByLabel("With the person or group").fill(values.person);
  await page.getByRole("button", { name: "Share", exact: true }).click();
  await page.locator(".done", { hasText: "shared" }).waitFor();
  findings.push(...(await audit()));
  if (values.picture) await page.screenshot({ path: `${values.picture}-shares.png`, fullPage: true });
  return { findings };
}

/** Accepts the invitation, finds an item of the other person, opens it, and looks through the library of the group. */
export async function join({ page, url, audit, values }) {
  await page.goto(`${url}/sharing`);
  const findings = await audit();
  if (values.picture) await page.screenshot({ path: `${values.picture}-invitation.png`, fullPage: true });
  await page.getByRole("button", { name: "Join" }).click();
  await page.locator(".done").waitFor();
  await page.goto(`${url}/?q=${values.query}`);
  await page.locator(".hit").first().waitFor();
  const badges = await page.locator(".hit .badge.library").allInnerTexts();
  findings.push(...(await audit()));
  if (values.picture) await page.screenshot({ path: `${values.picture}-results.png`, fullPage: true });
  await page.locator(".hit a").first().click();
  await page.locator("#item").waitFor();
  const item = await page.locator("#item").innerText();
  findings.push(...(await audit()));
  await page.goto(`${url}/library`);
  await page.locator("#library-choice").selectOption({ label: values.group });
  await page.getByRole("button", { name: "Show" }).first().click();
  await page.locator(".empty").waitFor();
  return { findings, badges, item };
}

/** Searches again after the share was ended. */
export async function search({ page, url, values }) {
  await page.goto(`${url}/?q=${values.query}`);
  await page.locator(".empty, .hit").first().waitFor();
  return { hits: await page.locator(".hit").count() };
}

/** Ends the share. */
export async function stop({ page, url }) {
  await page.goto(`${url}/sharing`);
  await page.getByRole("button", { name: /^Stop/ }).click();
  await page.locator(".done", { hasText: "not shared" }).waitFor();
  return {};
}

/** Returns by how much pages are wider than the window. */
export async function widths({ page, url, values }) {
  const wider = {};
  for (const path of values.paths) {
    await page.goto(url + path);
    wider[path] = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  }
  return wider;
}
