// An agent made with the TypeScript SDK: goes through every feature of the scripted server once and
// prints what it saw as one JSON object.
//
//   agent.mjs http URL
//   agent.mjs stdio COMMAND [ARGUMENT...]
//
// The SDK is found in the folder that MGP_PEERS names.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MGP_PEERS}/package.json`);
const sdk = (path) => require(`@modelcontextprotocol/sdk/${path}.js`);
const { Client } = sdk("client/index");
const { StdioClientTransport } = sdk("client/stdio");
const { StreamableHTTPClientTransport } = sdk("client/streamableHttp");
const types = sdk("types");

const DEADLINE = 60_000;
const [kind, ...target] = process.argv.slice(2);
const seen = { asked: [], logged: [], roots_asked: 0 };

const client = new Client(
  { name: "ts-agent", version: "1" },
  { capabilities: { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } } },
);

client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => {
  seen.asked.push(params.messages[0].content.text);
  return { role: "assistant", content: { type: "text", text: "four" }, model: "m" };
});
client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
  seen.asked.push(params.message);
  return { action: "accept", content: { username: "ada", email: "a@b.c" } };
});
client.setRequestHandler(types.ListRootsRequestSchema, () => {
  seen.roots_asked += 1;
  return { roots: [{ uri: "file:///home/ada", name: "home" }] };
});
client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => {
  seen.logged.push([params.level, params.data]);
});

const notified = (schema) => new Promise((done) => client.setNotificationHandler(schema, done));

async function opens() {
  const wire =
    kind === "http"
      ? new StreamableHTTPClientTransport(new URL(target[0]))
      : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
  const setVersion = wire.setProtocolVersion?.bind(wire);
  wire.setProtocolVersion = (version) => {
    seen.version = version;
    setVersion?.(version);
  };
  await client.connect(wire);
  seen.tools = (await client.listTools()).tools;
}

async function calls() {
  const call = (name, args = {}, options) =>
    client.callTool({ name, arguments: args }, undefined, options);
  seen.calls = [];
  for (const name of ["test_simple_text", "test_multiple_content_types", "test_error_handling"]) {
    seen.calls.push(await call(name));
  }
  seen.structured = await call("structured_echo", { text: "grüße" });
  seen.progress = [];
  const onprogress = ({ progress, total }) => seen.progress.push([progress, total]);
  await call("test_tool_with_progress", {}, { onprogress });
  seen.sampled = await call("test_sampling", { prompt: "two and two" });
  seen.elicited = await call("test_elicitation", { message: "who are you" });
  seen.rooted = await call("ask_roots");
  seen.unknown = await call("no such tool").then(() => "an answer", (error) => error.code);
}

async function reads() {
  seen.resources = (await client.listResources()).resources.map(({ uri }) => uri);
  const { resourceTemplates } = await client.listResourceTemplates();
  seen.templates = resourceTemplates.map(({ uriTemplate }) => uriTemplate);
  seen.read = [];
  for (const uri of ["test://static-text", "test://static-binary", "test://template/7/data"]) {
    seen.read.push(await client.readResource({ uri }));
  }
}

async function prompts() {
  seen.prompts = (await client.listPrompts()).prompts.map(({ name }) => name);
  const name = "test_prompt_with_arguments";
  seen.prompt = await client.getPrompt({ name, arguments: { arg1: "one", arg2: "two" } });
  const ref = { type: "ref/prompt", name };
  const completion = await client.complete({ ref, argument: { name: "arg1", value: "par" } });
  seen.completion = completion.completion.values;
}

async function listens() {
  const uri = "test://watched-resource";
  const updated = notified(types.ResourceUpdatedNotificationSchema);
  const changed = notified(types.ToolListChangedNotificationSchema);
  await client.setLoggingLevel("info");
  await client.callTool({ name: "test_tool_with_logging", arguments: {} });
  await client.subscribeResource({ uri });
  await client.callTool({ name: "test_trigger_resource_update", arguments: {} });
  await updated;
  await client.unsubscribeResource({ uri });
  await client.callTool({ name: "test_trigger_tool_change", arguments: {} });
  await changed;
  while (seen.logged.length < 3) await new Promise((done) => setTimeout(done, 10));
  await client.ping();
}

const late = setTimeout(() => {
  console.error(`not done within ${DEADLINE} ms; saw ${JSON.stringify(seen)}`);
  process.exit(1);
}, DEADLINE);
for (const chapter of [opens, calls, reads, prompts, listens]) await chapter();
await client.close();
clearTimeout(late);
console.log(JSON.stringify(seen));
