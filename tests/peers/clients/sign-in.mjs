// The OAuth client of the TypeScript SDK, as coding agents use it, with nothing but the URL of a server:
// `sign-in.mjs URL`. Prints {"authorize"} with the address for a browser, then {"tools"} once it is in, and {"again"} after
// it lost its access token and renewed it.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(join(process.env.MGP_PEERS, 'node_modules', 'x.js'));
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/client/${name}`)));
const { Client } = await load('index.js');
const { StreamableHTTPClientTransport } = await load('streamableHttp.js');
const { UnauthorizedError } = await load('auth.js');

const url = new URL(process.argv[2]);
const tell = (value) => console.log(JSON.stringify(value));

let arrived;
const arrival = new Promise((done) => { arrived = done; });
const browserComesBack = createServer((request, response) => {
  arrived(new URL(request.url, 'http://localhost'));
  response.end('You can close this page.');
});
const port = await new Promise((done) => browserComesBack.listen(0, '127.0.0.1', () => done(browserComesBack.address().port)));

const stored = {};
const provider = {
  get redirectUrl() { return `http://localhost:${port}/callback`; },
  get clientMetadata() {
    return {
      client_name: 'A coding agent',
      redirect_uris: [this.redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    };
  },
  state: () => 'the state of the agent',
  clientInformation: () => stored.client,
  saveClientInformation: (client) => { stored.client = client; },
  tokens: () => stored.tokens,
  saveTokens: (tokens) => { stored.tokens = tokens; },
  redirectToAuthorization: (to) => tell({ authorize: to.href }),
  saveCodeVerifier: (verifier) => { stored.verifier = verifier; },
  codeVerifier: () => stored.verifier,
};

const connect = async () => {
  const client = new Client({ name: 'sign-in', version: '1' });
  const transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
  try {
    await client.connect(transport);
    return { client, transport };
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    return { transport };
  }
};
const first = await connect();
const back = await arrival;
browserComesBack.close();
if (back.searchParams.get('state') !== provider.state()) throw new Error(`another state: ${back}`);
if (back.searchParams.get('error')) throw new Error(String(back));
await first.transport.finishAuth(back.searchParams.get('code'));
const { client } = await connect();
const names = async () => (await client.listTools()).tools.map((tool) => tool.name);
tell({ tools: await names(), secret: stored.client.client_secret ?? null, kind: stored.tokens.token_type });
const before = stored.tokens;
stored.tokens = { ...before, access_token: 'expired' };
const again = await names();
tell({ again, renewed: stored.tokens.refresh_token !== before.refresh_token });
await client.close();
process.exit(0);
