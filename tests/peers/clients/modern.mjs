// A client made with the TypeScript SDK 2.x: goes once through what a server of `servers/` offers
// and prints what it saw, one JSON object a line.
//
//   modern.mjs http URL
//   modern.mjs stdio COMMAND [ARGUMENT...]
//
// It asks for the version without `initialize`, and would fall back to one with it: `version`
// tells. The SDK is found in the folder that `MGP_PEERS` names.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MGP_PEERS}/package.json`);
const sdk = require("@modelcontextprotocol/client");
const { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } = sdk;
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const DEADLINE = 40_000;
const [kind, ...target] = process.argv.slice(2);
const asked = [];
const logged = [];
const saw = (what) => console.log(JSON.stringify(what));

const client = new Client(
  { name: "modern-typescript", version: "1" },
  {
    capabilities: { sampling: {}, elicitation: { form: {} }, roots: {} },
    versionNegotiation: { mode: "auto" },
  },
);

client.setRequestHandler("sampling/createMessage", ({ params }) => {
  asked.push(params.messages[0].content.text);
  return { role: "assistant", content: { type: "text", text: "four" }, model: "m" };
});
client.setRequestHandler("elicitation/create", ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: { name: "ada" } };
});
client.setRequestHandler("roots/list", () => ({
  roots: [{ uri: "file:///home/ada", name: "home" }],
}));
const allLogged = new Promise((done) => {
  client.setNotificationHandler("notifications/message", ({ params }) => {
    logged.push([params.level, params.data]);
    if (params.data === "nearly done") done();
  });
});

let noticed = () => {};
client.setNotificationHandler("notifications/resources/updated", ({ params }) =>
  noticed(params.uri),
);
client.setNotificationHandler("notifications/tools/list_changed", () => noticed("tools"));

const call = (name, args = {}, options) => client.callTool({ name, arguments: args }, options);
const textOf = (result) => result.content[0].text;

async function opens() {
  const wire =
    kind === "http"
      ? new StreamableHTTPClientTransport(new URL(target[0]))
      : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
  await client.connect(wire);
  saw({ version: client.getNegotiatedProtocolVersion() });
}

async function lists() {
  saw({ tools: (await client.listTools()).tools.map(({ name }) => name).sort() });
  saw({ resources: (await client.listResources()).resources.map(({ uri }) => uri) });
  saw({ prompts: (await client.listPrompts()).prompts.map(({ name }) => name) });
}

async function notifications() {
  const steps = [];
  const onprogress = ({ progress, total, message }) => {
    steps.push([progress, total, message]);
    if (progress === total) call("release");
  };
  const result = await call("progress", {}, { onprogress });
  saw({ progress: [steps, textOf(result)] });
  // Nothing was logged so far, as no request asked for it.
  await client.callTool({ name: "log", arguments: {}, _meta: { [LOG_LEVEL_META_KEY]: "info" } });
  await allLogged;
  saw({ logged });
}

async function calls() {
  saw({ echo: (await call("echo", { text: "grüße" })).structuredContent });
  for (const name of ["ask", "both", "roots"]) saw({ [name]: textOf(await call(name)) });
  saw({ sample: textOf(await call("sample", { prompt: "two and two" })) });
  saw({ at_once: (await Promise.all([call("ask"), call("ask")])).map(textOf) });
  saw({ asked });
  const failed = await call("fail");
  saw({ fail: [failed.isError, textOf(failed).includes("on purpose")] });
  const unknown = await call("no such tool").then(
    ({ isError }) => `a result, isError ${isError}`,
    ({ code }) => code,
  );
  saw({ unknown });
}

async function reads() {
  const { contents } = await client.readResource({ uri: "test://note" });
  saw({ read: contents.map(({ uri, mimeType, text }) => [uri, mimeType, text]) });
  const { messages } = await client.getPrompt({ name: "greet", arguments: { name: "ada" } });
  saw({ prompt: messages.map(({ role, content }) => [role, content.text]) });
}

async function listens() {
  const wanted = { toolsListChanged: true, resourceSubscriptions: ["test://note"] };
  const listening = await client.listen(wanted);
  const seen = [];
  for (const tool of ["touch", "grow"]) {
    const change = new Promise((done) => (noticed = done));
    await call(tool);
    seen.push(await change);
  }
  await listening.close();
  const { tools } = await client.listTools();
  saw({ changes: [...seen, tools.some(({ name }) => name === "grown")] });
}

async function cancels() {
  const stop = new AbortController();
  const options = { signal: stop.signal, onprogress: () => stop.abort("enough") };
  await call("wait", {}, options).catch(() => {});
  saw({ after: (await call("echo", { text: "still there" })).structuredContent.text });
}

const late = setTimeout(() => {
  console.error(`not done within ${DEADLINE} ms`);
  process.exit(1);
}, DEADLINE);
for (const chapter of [opens, lists, notifications, calls, reads, listens, cancels]) {
  await chapter();
}
await client.close();
clearTimeout(late);
