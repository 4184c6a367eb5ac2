// TypeScript client 2.x over Streamable HTTP; the first argument is its negotiation mode: legacy, auto or a version.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { identity, token, url, visit } from "./visit.mjs";

const named = process.argv[2];
const mode = named === "legacy" || named === "auto" ? named : { pin: named };
const client = new Client(identity, { versionNegotiation: { mode } });
const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
await visit(client, transport, () => ({ era: client.getProtocolEra() }));
