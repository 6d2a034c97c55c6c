// A server of the skills of a folder, made with the SDK of the extension: `server.mjs FOLDER`.
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(`${process.env.MGP_PEERS}/node_modules/${file}`));
const { McpServer } = await load("@modelcontextprotocol/server/dist/index.mjs");
const { serveStdio } = await load("@modelcontextprotocol/server/dist/stdio.mjs");
const { discoverSkills, registerSkillResources } = await load(
  "@olaservo/ext-skills/dist/server/index.js",
);

const folder = process.argv[2];
const skills = discoverSkills(folder);
serveStdio(() => {
  const server = new McpServer(
    { name: "skills", version: "1.0.0" },
    { capabilities: { resources: {} } },
  );
  registerSkillResources(server, skills, folder, { template: true, directoryRead: true });
  return server;
});
