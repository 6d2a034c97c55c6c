// A client made with the TypeScript SDK, 1.x or 2.x, that gives its child the environment the SDK gives
// by itself, and prints the names of the tools it finds as JSON.
//
//   plain.mjs COMMAND [ARGUMENT...]
//
// The SDK is found in the folder that MGP_PEERS names.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";

const peers = process.env.MGP_PEERS;
const require = createRequire(`${peers}/package.json`);
const modern = existsSync(`${peers}/node_modules/@modelcontextprotocol/client`);
const [client, stdio] = modern
  ? ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"]
  : ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/stdio.js"];
const { Client } = require(client);
const { StdioClientTransport } = require(stdio);

const [command, ...args] = process.argv.slice(2);
const agent = new Client({ name: "plain", version: "1" });
await agent.connect(new StdioClientTransport({ command, args }));
console.log(JSON.stringify((await agent.listTools()).tools.map(({ name }) => name)));
await agent.close();
