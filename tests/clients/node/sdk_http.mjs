// TypeScript SDK 1.x over Streamable HTTP: the legacy era, with a session.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { identity, token, url, visit } from "./visit.mjs";

const headers = { Authorization: `Bearer ${token}` };
const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
await visit(new Client(identity), transport, () => ({ hadSession: transport.sessionId !== undefined }));
