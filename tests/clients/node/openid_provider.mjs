// OpenID Connect providers for tests: one for each port of FLORILEGIUM_TEST_PORTS. Prints "ready" once all listen. The
// account that signs in is chosen with ?account=NAME at the interaction, instead of a password; ?account= refuses.
import http from "node:http";
import Provider from "oidc-provider";

const accounts = JSON.parse(process.env.FLORILEGIUM_TEST_ACCOUNTS);
const redirects = JSON.parse(process.env.FLORILEGIUM_TEST_REDIRECTS);
const ports = JSON.parse(process.env.FLORILEGIUM_TEST_PORTS);

async function serve(port) {
  const issuer = `http://127.0.0.1:${port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "florilegium", client_secret: "s:ecret/with?signs", redirect_uris: redirects }],
    claims: {
      openid: ["sub"],
      email: ["email", "email_verified"],
      profile: ["preferred_username", "name"],
      groups: ["groups"],
    },
    scopes: ["openid", "email", "profile", "groups"],
    pkce: { required: () => true },
    cookies: { keys: ["a key for tests"] },
    features: { devInteractions: { enabled: false } },
    // Claims of scopes are only in the userinfo response, as with several hosted providers.
    conformIdTokenClaims: true,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...accounts[id] }) }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  });
  provider.use(async (ctx, next) => {
    if (!ctx.path.startsWith("/interaction/")) return next();
    const { params, prompt, grantId } = await provider.interactionDetails(ctx.req, ctx.res);
    const account = ctx.query.account;
    if (!account) {
      ctx.respond = false;
      return provider.interactionFinished(ctx.req, ctx.res, { error: "access_denied" });
    }
    const grant = grantId
      ? await provider.Grant.find(grantId)
      : new provider.Grant({ accountId: account, clientId: params.client_id });
    grant.addOIDCScope(params.scope);
    ctx.respond = false;
    return provider.interactionFinished(ctx.req, ctx.res, {
      login: { accountId: account },
      consent: { grantId: await grant.save() },
    });
  });
  await new Promise((resolve) => http.createServer(provider.callback()).listen(port, "127.0.0.1", resolve));
}

await Promise.all(ports.map(serve));
console.log("ready");
