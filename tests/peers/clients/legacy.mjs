// A client made with the TypeScript SDK 1.x: goes once through what a server of `servers/` offers
// and prints what it saw, one JSON object a line.
//
//   legacy.mjs http URL
//   legacy.mjs stdio COMMAND [ARGUMENT...]
//
// The SDK is found in the folder that `MGP_PEERS` names.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MGP_PEERS}/package.json`);
const sdk = (path) => require(`@modelcontextprotocol/sdk/${path}.js`);
const { Client } = sdk("client/index");
const { StdioClientTransport } = sdk("client/stdio");
const { StreamableHTTPClientTransport } = sdk("client/streamableHttp");
const types = sdk("types");

const DEADLINE = 40_000;
const [kind, ...target] = process.argv.slice(2);
const asked = [];
const logged = [];
const saw = (what) => console.log(JSON.stringify(what));

const client = new Client(
  { name: "legacy-typescript", version: "1" },
  { capabilities: { sampling: {}, elicitation: { form: {} }, roots: {} } },
);

client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => {
  asked.push(params.messages[0].content.text);
  return { role: "assistant", content: { type: "text", text: "four" }, model: "m" };
});
client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: { name: "ada" } };
});
client.setRequestHandler(types.ListRootsRequestSchema, () => ({
  roots: [{ uri: "file:///home/ada", name: "home" }],
}));
const allLogged = new Promise((done) => {
  client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => {
    logged.push([params.level, params.data]);
    if (params.data === "nearly done") done();
  });
});

let noticed = () => {};
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) =>
  noticed(params.uri),
);
client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => noticed("tools"));

const call = (name, args = {}, options) =>
  client.callTool({ name, arguments: args }, undefined, options);
const textOf = (result) => result.content[0].text;

async function opens() {
  const wire =
    kind === "http"
      ? new StreamableHTTPClientTransport(new URL(target[0]))
      : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
  const setVersion = wire.setProtocolVersion?.bind(wire);
  wire.setProtocolVersion = (version) => {
    saw({ version });
    setVersion?.(version);
  };
  await client.connect(wire);
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
  await client.setLoggingLevel("info");
  await call("log");
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
  await client.subscribeResource({ uri: "test://note" });
  const seen = [];
  for (const tool of ["touch", "grow"]) {
    const change = new Promise((done) => (noticed = done));
    await call(tool);
    seen.push(await change);
  }
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
