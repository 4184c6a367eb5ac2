// The TypeScript SDK signs in by OAuth: it registers, prints where its user has to sign in, waits for the answer on a
// loopback port, and connects. `1` uses SDK 1.x, `2` client 2.x.
import { createServer } from "node:http";
import { identity, url, visit } from "./visit.mjs";

const modules = {
  1: ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/streamableHttp.js"],
  2: ["@modelcontextprotocol/client", "@modelcontextprotocol/client"],
};
const [clientModule, transportModule] = modules[process.argv[2]];
const { Client } = await import(clientModule);
const { StreamableHTTPClientTransport } = await import(transportModule);

const answer = Promise.withResolvers();
const listener = createServer((request, response) => {
  response.end("You can close this page.");
  answer.resolve(new URL(request.url, "http://127.0.0.1").searchParams);
});
await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));

const stored = {};
const provider = {
  redirectUrl: `http://127.0.0.1:${listener.address().port}/callback`,
  clientMetadata: {
    client_name: "TypeScript client",
    redirect_uris: [`http://127.0.0.1:${listener.address().port}/callback`],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  clientMetadataUrl: process.env.FLORILEGIUM_TEST_CLIENT_METADATA,
  clientInformation: () => stored.client,
  saveClientInformation: (client) => void (stored.client = client),
  tokens: () => stored.tokens,
  saveTokens: (tokens) => void (stored.tokens = tokens),
  redirectToAuthorization: (address) => console.error(`sign in at ${address}`),
  codeVerifier: () => stored.verifier,
  saveCodeVerifier: (verifier) => void (stored.verifier = verifier),
};

const first = new StreamableHTTPClientTransport(url, { authProvider: provider });
try {
  await new Client(identity).connect(first);
  throw new Error("connected without signing in");
} catch (error) {
  if (error.constructor.name !== "UnauthorizedError") throw error;
}
const parameters = await answer.promise;
await first.finishAuth(process.argv[2] === "1" ? parameters.get("code") : parameters);
const transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
await visit(new Client(identity), transport, () => ({ hadSession: Boolean(stored.tokens.refresh_token) }));
listener.close();
