// A server made with the TypeScript SDK 2.x, of the version without `initialize`; it refuses
// clients that open with it.
//
//   modern.mjs stdio
//   modern.mjs http
//
// Over HTTP it says its port and ends with its input. What was cancelled it tells in the file that
// `MGP_WITNESS` names. The SDK is found in the folder that `MGP_PEERS` names.
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MGP_PEERS}/package.json`);
const sdk = require("@modelcontextprotocol/server");
const { McpServer, acceptedContent, createMcpHandler, inputRequired, inputResponse } = sdk;
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const { toNodeHandler } = require("@modelcontextprotocol/node");
const { z } = require("zod");

const text = (words) => ({ content: [{ type: "text", text: words }] });
let release;
const released = new Promise((done) => (release = done));
// Over HTTP each request has a server of its own, and only the handler of all tells of changes.
let handler;
let grown = false;
const Name = z.object({ name: z.string() });
const NONE = { inputSchema: z.object({}) };

/// What one key asks for until it is answered: `[answer]`, or `[undefined, what to return]`.
const asked = ({ mcpReq }, key, message, requestState) => {
  const answer = acceptedContent(mcpReq.inputResponses, key, Name);
  if (answer !== undefined) return [answer.name];
  const inputRequests = { [key]: inputRequired.elicit({ message, requestedSchema: Name }) };
  return [undefined, inputRequired({ inputRequests, requestState })];
};
const sampled = ({ mcpReq }, key, prompt, requestState) => {
  const answer = inputResponse(mcpReq.inputResponses, key);
  if (answer.kind === "sampling") return [answer.result.content.text];
  const messages = [{ role: "user", content: { type: "text", text: prompt } }];
  const inputRequests = { [key]: inputRequired.createMessage({ messages, maxTokens: 10 }) };
  return [undefined, inputRequired({ inputRequests, requestState })];
};
const report = async ({ mcpReq }, progress, total, message) => {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  const params = { progressToken, progress, total, message };
  await mcpReq.notify({ method: "notifications/progress", params });
};

function build() {
  const server = new McpServer(
    { name: "modern-typescript", version: "1" },
    { capabilities: { logging: {}, resources: { subscribe: true } } },
  );
  server.registerTool(
    "echo",
    {
      inputSchema: z.object({ text: z.string() }),
      outputSchema: z.object({ text: z.string(), version: z.string() }),
    },
    ({ text: words }, { mcpReq }) => {
      const version = mcpReq.envelope?.["io.modelcontextprotocol/protocolVersion"] ?? "none";
      const structuredContent = { text: words, version };
      return { ...text(JSON.stringify(structuredContent)), structuredContent };
    },
  );
  server.registerTool("ask", NONE, (_, ctx) => {
    const [name, more] = asked(ctx, "who", "who are you");
    return more ?? text(`you are ${name}`);
  });
  server.registerTool("sample", { inputSchema: z.object({ prompt: z.string() }) }, ({ prompt }, ctx) => {
    const [word, more] = sampled(ctx, "word", prompt);
    return more ?? text(`the model says ${word}`);
  });
  server.registerTool("both", NONE, (_, ctx) => {
    let name = ctx.mcpReq.requestState();
    if (name === undefined) {
      const [answer, more] = asked(ctx, "about", "who is it about");
      if (more) return more;
      name = answer;
    }
    const [word, more] = sampled(ctx, "word", `a word about ${name}`, name);
    return more ?? text(`of ${name}: ${word}`);
  });
  server.registerTool("roots", NONE, (_, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, "places");
    if (answer.kind !== "roots") {
      return inputRequired({ inputRequests: { places: inputRequired.listRoots() } });
    }
    return text(answer.roots.map(({ uri }) => uri).join(" "));
  });
  server.registerTool("log", NONE, async (_, { mcpReq }) => {
    await mcpReq.log("debug", "too quiet");
    await mcpReq.log("info", "begun");
    await mcpReq.log("warning", "nearly done");
    return text("logged");
  });
  server.registerTool("progress", NONE, async (_, ctx) => {
    for (const step of [1, 2, 3]) await report(ctx, step, 3, `step ${step}`);
    await released;
    return text("done");
  });
  server.registerTool("release", NONE, () => {
    release();
    return text("released");
  });
  server.registerTool("touch", NONE, async () => {
    if (handler) handler.notify.resourceUpdated("test://note");
    else await server.server.sendResourceUpdated({ uri: "test://note" });
    return text("touched");
  });
  const grow = () => server.registerTool("grown", NONE, () => text("grown"));
  if (grown) grow();
  server.registerTool("grow", NONE, () => {
    grown = true;
    if (handler) handler.notify.toolsChanged();
    else grow();
    return text("grown");
  });
  server.registerTool("wait", NONE, async (_, ctx) => {
    const cancelled = new Promise((done) => ctx.mcpReq.signal.addEventListener("abort", done));
    await report(ctx, 1, 2, "waiting");
    await cancelled;
    appendFileSync(process.env.MGP_WITNESS, "cancelled\n");
    return text("never");
  });
  server.registerTool("fail", NONE, () => {
    throw new Error("on purpose");
  });
  server.registerResource("note", "test://note", { mimeType: "text/plain" }, ({ href }) => ({
    contents: [{ uri: href, mimeType: "text/plain", text: "a note" }],
  }));
  server.registerPrompt("greet", { argsSchema: Name }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `say hello to ${name}` } }],
  }));
  return server;
}

function serveHttp() {
  handler = createMcpHandler(build, { legacy: "reject" });
  const answer = toNodeHandler(handler);
  const door = createServer((request, response) => void answer(request, response));
  door.listen(0, "127.0.0.1", () => console.log(`listening 127.0.0.1:${door.address().port}`));
  process.stdin.resume().on("end", () => process.exit(0));
}

if (process.argv[2] === "http") serveHttp();
else serveStdio(build, { legacy: "reject" });
