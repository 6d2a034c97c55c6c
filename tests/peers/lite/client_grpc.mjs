// A client of the gRPC door made with @grpc/grpc-js: reads requests as JSON lines, writes what came of each as one.
//
//     node client_grpc.mjs HOST:PORT PROTO
//
//     {"op": "tools"} | {"op": "call", ...} | {"op": "stream", ...}, as client_grpc.py has them

import { createRequire } from "node:module";
import readline from "node:readline";

const require = createRequire(`${process.env.MGP_PEERS}/package.json`);
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, proto] = process.argv.slice(2);
const definition = loader.loadSync(proto, { keepCase: true, enums: String, longs: Number, defaults: true, oneofs: true });
const { MCPLite } = grpc.loadPackageDefinition(definition).mcplite;
const client = new MCPLite(address, grpc.credentials.createInsecure());

// A `Struct` is plain fields to this library.
function packed(value) {
  if (value === null) return { nullValue: "NULL_VALUE" };
  if (Array.isArray(value)) return { listValue: { values: value.map(packed) } };
  if (typeof value === "object") return { structValue: fields(value) };
  if (typeof value === "boolean") return { boolValue: value };
  return { [`${typeof value}Value`]: value };
}

function fields(object) {
  return { fields: Object.fromEntries(Object.entries(object).map(([key, value]) => [key, packed(value)])) };
}

function unpacked(value) {
  switch (value.kind) {
    case "structValue":
      return object(value.structValue);
    case "listValue":
      return value.listValue.values.map(unpacked);
    case "nullValue":
      return null;
    default:
      return value[value.kind];
  }
}

function object(struct) {
  return Object.fromEntries(Object.entries(struct?.fields ?? {}).map(([key, value]) => [key, unpacked(value)]));
}

function told(response) {
  return { result: object(response.result), meta: response.meta };
}

function refused(error) {
  return { error: { code: grpc.status[error.code], message: error.details } };
}

function asked(said) {
  const metadata = new grpc.Metadata();
  for (const [name, value] of Object.entries(said.metadata ?? {})) metadata.set(name, value);
  const deadline = new Date(Date.now() + (said.timeout ?? 30) * 1000);
  const request = said.name === undefined ? {} : { name: said.name, arguments: fields(said.arguments ?? {}) };
  return [request, metadata, { deadline }];
}

const ops = {
  tools: (said, done) => client.GetTools(...asked(said), done),
  call: (said, done) => client.CallTool(...asked(said), (error, response) => done(error, response && told(response))),
  stream(said, done) {
    const messages = [];
    const stream = client.CallToolStream(...asked(said));
    stream.on("data", (message) => messages.push(told(message)));
    stream.on("error", (error) => done(null, { messages, ...refused(error) }));
    stream.on("end", () => done(null, { messages }));
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const said = JSON.parse(line);
  let once = false;
  await new Promise((next) => {
    ops[said.op](said, (error, answer) => {
      if (!once) console.log(JSON.stringify(error ? refused(error) : answer));
      once = true;
      next();
    });
  });
}
process.exit(0);
