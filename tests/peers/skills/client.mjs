// A client made with the SDK of the extension: lists the skills at a URL, loads each, and reads every file of it, verified
// against its entry. Prints what it found as JSON.
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(`${process.env.MGP_PEERS}/node_modules/${file}`));
const { Client, StreamableHTTPClientTransport } = await load(
  "@modelcontextprotocol/client/dist/index.mjs",
);
const sdk = await load("@olaservo/ext-skills/dist/client/index.js");

const client = new Client(
  { name: "host", version: "1.0.0" },
  { versionNegotiation: { mode: "auto" }, capabilities: sdk.SKILLS_CLIENT_CAPABILITIES },
);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const found = {
  version: client.getNegotiatedProtocolVersion(),
  declared: [sdk.serverSupportsSkills(client), sdk.serverSupportsDirectoryRead(client)],
  skills: {},
};
for (const entry of await sdk.listSkills(client)) {
  const same = await sdk.getSkill(client, entry.uri);
  const files = {};
  for (const file of sdk.manifestOf(same)) {
    const read = await sdk.readSkillResource(client, same, file.uri);
    files[file.uri] = read.text ?? read.blob;
  }
  const root = entry.uri.slice(0, -"/SKILL.md".length);
  const walked = await sdk.walkDirectory(client, root);
  found.skills[entry.uri] = {
    frontmatter: entry.frontmatter,
    text: await sdk.readSkill(client, same),
    files,
    walked: walked.map((file) => file.uri).sort(),
  };
}
console.log(JSON.stringify(found));
await client.close();
