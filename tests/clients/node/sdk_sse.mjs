// TypeScript SDK 1.x over the deprecated HTTP+SSE transport: the stream and every message carry the credential.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { identity, token, url, visit } from "./visit.mjs";

const requestInit = { headers: { Authorization: `Bearer ${token}` } };
await visit(new Client(identity), new SSEClientTransport(url, { requestInit }));
