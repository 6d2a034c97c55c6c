// A server made with the TypeScript SDK 1.x, of the versions that open with `initialize`.
//
//   legacy.mjs stdio
//   legacy.mjs http
//
// Over HTTP it says its port and ends with its input. What was cancelled it tells in the file that
// `MGP_WITNESS` names. The SDK is found in the folder that `MGP_PEERS` names.
import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MGP_PEERS}/package.json`);
const sdk = (path) => require(`@modelcontextprotocol/sdk/${path}.js`);
const { McpServer } = sdk("server/mcp");
const { StdioServerTransport } = sdk("server/stdio");
const { StreamableHTTPServerTransport } = sdk("server/streamableHttp");
const { SubscribeRequestSchema } = sdk("types");
const { z } = require("zod");

const text = (words) => ({ content: [{ type: "text", text: words }] });
let release;
const released = new Promise((done) => (release = done));

function build() {
  const mcp = new McpServer(
    { name: "legacy-typescript", version: "1" },
    { capabilities: { logging: {}, resources: { subscribe: true } } },
  );
  const { server } = mcp;
  const heard = {};
  server.setRequestHandler(SubscribeRequestSchema, () => ({}));

  const asked = async (message, options) => {
    const requestedSchema = {
      type: "object",
      properties: { name: { type: "string" } },
      required: ["name"],
    };
    const answer = await server.elicitInput({ message, requestedSchema }, options);
    return answer.action === "accept" ? answer.content.name : answer.action;
  };
  const sampled = async (prompt, options) => {
    const messages = [{ role: "user", content: { type: "text", text: prompt } }];
    return (await server.createMessage({ messages, maxTokens: 10 }, options)).content.text;
  };
  const about = ({ requestId }) => ({ relatedRequestId: requestId });
  const report = async (extra, progress, total, message) => {
    const progressToken = extra._meta?.progressToken;
    if (progressToken === undefined) return;
    const params = { progressToken, progress, total, message };
    await extra.sendNotification({ method: "notifications/progress", params });
  };

  mcp.registerTool(
    "echo",
    {
      inputSchema: { text: z.string() },
      outputSchema: { text: z.string(), version: z.string() },
    },
    ({ text: words }) => {
      const structuredContent = { text: words, version: heard.version };
      return { ...text(JSON.stringify(structuredContent)), structuredContent };
    },
  );
  mcp.registerTool("ask", {}, async (extra) =>
    text(`you are ${await asked("who are you", about(extra))}`),
  );
  mcp.registerTool("sample", { inputSchema: { prompt: z.string() } }, async ({ prompt }, extra) =>
    text(`the model says ${await sampled(prompt, about(extra))}`),
  );
  mcp.registerTool("both", {}, async (extra) => {
    const name = await asked("who is it about", about(extra));
    return text(`of ${name}: ${await sampled(`a word about ${name}`, about(extra))}`);
  });
  mcp.registerTool("roots", {}, async (extra) => {
    const { roots } = await server.listRoots(undefined, about(extra));
    return text(roots.map(({ uri }) => uri).join(" "));
  });
  mcp.registerTool("log", {}, async (extra) => {
    const said = [["debug", "too quiet"], ["info", "begun"], ["warning", "nearly done"]];
    // Not by sendLoggingMessage, which over HTTP tells everybody, beside the request it is about.
    for (const [level, data] of said) {
      if (server.isMessageIgnored(level, extra.sessionId)) continue;
      await extra.sendNotification({ method: "notifications/message", params: { level, data } });
    }
    return text("logged");
  });
  mcp.registerTool("progress", {}, async (extra) => {
    for (const step of [1, 2, 3]) await report(extra, step, 3, `step ${step}`);
    await released;
    return text("done");
  });
  mcp.registerTool("release", {}, () => {
    release();
    return text("released");
  });
  mcp.registerTool("touch", {}, async () => {
    await server.sendResourceUpdated({ uri: "test://note" });
    return text("touched");
  });
  mcp.registerTool("grow", {}, () => {
    mcp.registerTool("grown", {}, () => text("grown"));
    return text("grown");
  });
  mcp.registerTool("wait", {}, async (extra) => {
    const cancelled = new Promise((done) => extra.signal.addEventListener("abort", done));
    await report(extra, 1, 2, "waiting");
    await cancelled;
    appendFileSync(process.env.MGP_WITNESS, "cancelled\n");
    return text("never");
  });
  mcp.registerTool("fail", {}, () => {
    throw new Error("on purpose");
  });
  mcp.registerResource("note", "test://note", { mimeType: "text/plain" }, ({ href }) => ({
    contents: [{ uri: href, mimeType: "text/plain", text: "a note" }],
  }));
  mcp.registerPrompt("greet", { argsSchema: { name: z.string() } }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `say hello to ${name}` } }],
  }));

  const connect = async (wire) => {
    await mcp.connect(wire);
    const send = wire.send.bind(wire);
    wire.send = (message, options) => {
      heard.version ??= message.result?.protocolVersion;
      return send(message, options);
    };
  };
  return connect;
}

function serveHttp() {
  const sessions = new Map();
  const open = async () => {
    const wire = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, wire),
    });
    await build()(wire);
    return wire;
  };
  const door = createServer(async (request, response) => {
    const id = request.headers["mcp-session-id"];
    const wire = id === undefined ? await open() : sessions.get(id);
    if (wire === undefined) response.writeHead(404).end();
    else await wire.handleRequest(request, response);
  });
  door.listen(0, "127.0.0.1", () => console.log(`listening 127.0.0.1:${door.address().port}`));
  process.stdin.resume().on("end", () => process.exit(0));
}

if (process.argv[2] === "http") serveHttp();
else await build()(new StdioServerTransport());
