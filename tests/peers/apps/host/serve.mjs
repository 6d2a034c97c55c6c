// Serves a host of MCP Apps and its sandbox at two origins of this machine; prints both.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { join, normalize } from 'node:path';

const OWN = import.meta.dirname;
const MODULES = join(process.env.MGP_PEERS, 'node_modules');
const KINDS = { html: 'text/html; charset=utf-8', js: 'text/javascript', mjs: 'text/javascript' };

// The policy of the extension's specification, loosened by what the resource declares.
function policy(csp = {}) {
  const of = (name) => (csp[name] ?? []).join(' ');
  const resources = of('resourceDomains');
  return [
    "default-src 'none'",
    `script-src 'self' 'unsafe-inline' ${resources}`,
    `style-src 'self' 'unsafe-inline' ${resources}`,
    `img-src 'self' data: ${resources}`,
    `font-src 'self' ${resources}`,
    `connect-src ${of('connectDomains') || "'none'"}`,
    `frame-src 'self' ${of('frameDomains')}`,
  ].join('; ');
}

function serve(folders, headers) {
  return new Promise((listening) => {
    const server = createServer(async (request, response) => {
      const { pathname, searchParams } = new URL(request.url, 'http://localhost');
      const [prefix, folder] = folders.find(([prefix]) => pathname.startsWith(prefix)) ?? [];
      const path = normalize(join(folder ?? OWN, pathname.slice(prefix?.length ?? 0)));
      const body = path.startsWith(folder) ? await readFile(path).catch(() => null) : null;
      const kind = KINDS[path.split('.').pop()] ?? 'text/plain';
      response.writeHead(body ? 200 : 404, { 'content-type': kind, ...headers(searchParams) });
      response.end(body);
    });
    server.listen(0, '127.0.0.1', () => listening(server.address().port));
  });
}

const host = await serve([['/modules/', MODULES], ['/', join(OWN, 'page')]], () => ({}));
const sandbox = await serve([['/', join(OWN, 'sandbox')]], (query) => ({
  'content-security-policy': policy(JSON.parse(query.get('csp') ?? '{}')),
}));
console.log(JSON.stringify({ host: `http://localhost:${host}`, sandbox: `http://127.0.0.1:${sandbox}` }));
