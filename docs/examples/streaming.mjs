// An agent that speaks MGP: it follows what becomes of its calls, reads a result while it is made, and
// answers what a tool asks.
//
//   MGP_TOKEN=... node streaming.mjs http://127.0.0.1:7332/mcp
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod";

const mgp = { version: "0.2.0", extensions: ["streaming", "bidirectional"] };
const client = new Client(
  { name: "streaming", version: "1" },
  { capabilities: { experimental: { mgp } } },
);

// What comes of a method, once it comes.
const hears = (name, heard) => {
  const method = z.literal(`notifications/mgp.${name}`);
  const schema = z.object({ method, params: z.looseObject({}) });
  client.setNotificationHandler(schema, ({ params }) => heard(params));
};
const ask = (method, params) => client.request({ method, params }, ResultSchema);

hears("stream.chunk", ({ index, content }) => console.log(`chunk ${index}:`, content.text));
const asked = new Promise((done) => hears("callback.request", done));
const events = [];
let more = () => {};
hears("event", (event) => more(events.push(event)));

// What was told of a call; that it is done comes when it is written down, often after its result.
async function outcome() {
  while (events.length < 2) await new Promise((done) => (more = done));
  for (const event of events.splice(0, 2)) {
    console.log(`event ${event["_mgp.seq"]}: ${event.channel} ${event.data.tool_name}`);
  }
}

const requestInit = { headers: { Authorization: `Bearer ${process.env.MGP_TOKEN}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2]), { requestInit }));
const agreed = client.getServerCapabilities().experimental.mgp;
console.log("agreed on MGP", agreed.version, "and", agreed.extensions.join(", "));
const { subscribed } = await ask("mgp/events/subscribe", { channels: ["tool.*"] });
console.log("follows", ...subscribed);

const explained = await client.callTool({ name: "garden__explain", _mgp: { stream: true } });
console.log("result:", explained.content[0].text);
await outcome();

const call = client.callTool({ name: "garden__clear", arguments: { folder: "attic" } });
const { callback_id, server_id, message, options } = await asked;
console.log(`${server_id} asks: ${message} (${options.join(", ")})`);
await ask("mgp/callback/respond", { callback_id, response: "confirm" });
console.log("result:", (await call).content[0].text);
await outcome();
await client.close();
