// A host of MCP Apps, of the parts that the reference host is made of: the client, and `AppBridge` of the extension's SDK.
// What it is to show is in its address.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { AppBridge, PostMessageTransport, RESOURCE_MIME_TYPE, getToolUiResourceUri } from '@modelcontextprotocol/ext-apps/app-bridge';

const asked = Object.fromEntries(new URLSearchParams(location.search));
const HOST = { name: 'host-of-apps', version: '1' };
// What the test reads.
window.shown = { calls: [] };

async function connect() {
  const capabilities = { extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: [RESOURCE_MIME_TYPE] } } };
  const client = new Client(HOST, { capabilities, versionNegotiation: { mode: asked.mode } });
  const headers = { authorization: `Bearer ${asked.token}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(asked.url), { requestInit: { headers } }));
  return client;
}

async function page(client, uri) {
  const { contents: [one] } = await client.readResource({ uri });
  if (one.mimeType !== RESOURCE_MIME_TYPE) throw new Error(`a page of type ${one.mimeType}`);
  return { html: one.text ?? atob(one.blob), ...one._meta?.ui };
}

/** The frame of the sandbox, once it says that it is there. */
function sandbox(csp) {
  const frame = document.createElement('iframe');
  frame.setAttribute('sandbox', 'allow-scripts allow-same-origin allow-forms');
  frame.src = `${asked.sandbox}/index.html?csp=${encodeURIComponent(JSON.stringify(csp ?? {}))}`;
  document.body.append(frame);
  return new Promise((ready) => addEventListener('message', ({ source, data }) => {
    if (source === frame.contentWindow && data?.method === 'ui/notifications/sandbox-proxy-ready') ready(frame);
  }));
}

async function show() {
  const client = await connect();
  const { tools } = await client.listTools();
  const tool = tools.find(({ name }) => name === asked.tool);
  const result = await client.callTool({ name: tool.name, arguments: {} });
  const { html, csp, permissions } = await page(client, getToolUiResourceUri(tool));
  const frame = await sandbox(csp);
  const { tools: serverTools, resources: serverResources } = client.getServerCapabilities();
  const bridge = new AppBridge(client, HOST, { openLinks: {}, serverTools, serverResources });
  const initialized = new Promise((done) => { bridge.oninitialized = done; });
  bridge.onsizechange = ({ height }) => { window.shown.height = height; };
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  // What the app asks the server for goes over this client.
  const send = client.callTool.bind(client);
  client.callTool = (params, ...more) => { window.shown.calls.push(params.name); return send(params, ...more); };
  await bridge.sendSandboxResourceReady({ html, csp, permissions });
  await initialized;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(result);
  window.shown.version = client.getNegotiatedProtocolVersion?.();
  window.shown.done = true;
}

show().catch((error) => { window.shown.error = `${error.stack ?? error}`; });
