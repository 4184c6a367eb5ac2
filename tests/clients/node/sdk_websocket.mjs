// TypeScript SDK 1.x over WebSocket. Node's WebSocket sends no headers, so the token buys a ticket first.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { identity, token, url, visit } from "./visit.mjs";

const ticketUrl = process.env.FLORILEGIUM_TEST_TICKET_URL;
const bought = await fetch(ticketUrl, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
url.searchParams.set("ticket", (await bought.json()).ticket);
await visit(new Client(identity), new WebSocketClientTransport(url));
