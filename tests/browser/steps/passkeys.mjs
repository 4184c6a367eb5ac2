// Steps with passkeys. Chromium has a virtual authenticator for each page, which signs with real keys.

async function addAuthenticator(context, page) {
  const client = await context.newCDPSession(page);
  await client.send("WebAuthn.enable");
  const { authenticatorId } = await client.send("WebAuthn.addVirtualAuthenticator", {
    options: {
      protocol: "ctap2",
      transport: "internal",
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  return { client, authenticatorId };
}

/** Adds a passkey, signs out and in with it, removes it, and tries it once more. */
export async function lifecycle({ page, context, url, values, audit }) {
  const { client, authenticatorId } = await addAuthenticator(context, page);
  await page.goto(`${url}/account`);
  await page.locator("#passkey_name").fill(values.device);
  await page.getByRole("button", { name: "Add a passkey" }).click();
  await page.locator(".done").waitFor();
  const { credentials } = await client.send("WebAuthn.getCredentials", { authenticatorId });
  const added = await page.locator("section", { hasText: "Passkeys" }).locator(".rows li p").first().innerText();
  await page.getByRole("button", { name: "Sign out", exact: true }).first().click();
  await page.goto(`${url}/sign-in?next=/library`);
  const findings = await audit();
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await page.waitForURL(`${url}/library`);
  await page.goto(`${url}/account`);
  const name = await page.locator("h1").innerText();
  const used = await page.locator("section", { hasText: "Passkeys" }).locator(".rows li .hint").first().innerText();
  await page.locator("section", { hasText: "Passkeys" }).getByRole("button", { name: "Remove" }).click();
  await page.locator(".done").waitFor();
  await page.getByRole("button", { name: "Sign out", exact: true }).first().click();
  await page.goto(`${url}/sign-in`);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  const refused = await page.locator("text=was not accepted").first().innerText();
  return { credentials: credentials.length, added, name, used, refused, findings };
}

/** Tries to sign in with a device that has no passkey of this server. */
export async function withoutPasskey({ page, context, url }) {
  await addAuthenticator(context, page);
  await page.goto(`${url}/sign-in`);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  const message = page.locator("[data-passkey] [role=alert]");
  await message.waitFor();
  return { message: await message.innerText(), address: page.url() };
}
