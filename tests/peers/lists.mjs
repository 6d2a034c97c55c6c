// Reads lists with the TypeScript SDK: lists.mjs FILE, a JSON array of [method, result]. Prints what the SDK says of
// each that it cannot read, as a JSON array.
//
// The SDK, 1.x or 2.x, is found in the folder that MGP_PEERS names.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

const folder = process.env.MGP_PEERS;
const require = createRequire(`${folder}/package.json`);
const first = existsSync(`${folder}/node_modules/@modelcontextprotocol/sdk`);
const types = require(first ? "@modelcontextprotocol/sdk/types.js" : "@modelcontextprotocol/core");
const readers = {
  "tools/list": types.ListToolsResultSchema,
  "prompts/list": types.ListPromptsResultSchema,
  "resources/list": types.ListResourcesResultSchema,
  "resources/templates/list": types.ListResourceTemplatesResultSchema,
};

const wrong = [];
for (const [method, result] of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  const read = readers[method].safeParse(result);
  if (!read.success) wrong.push([method, read.error.message]);
}
console.log(JSON.stringify(wrong));
