// An identity provider without dynamic registration (oidc-provider), configured like one of those that people have:
// `identity.mjs entra|okta|keycloak|google`. Prints {"issuer"}; POST /control/client with the redirect URI of its only
// client starts it. Whoever comes with a browser is signed in at once.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(join(process.env.MGP_PEERS, 'node_modules', 'x.js'));
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const kinds = {
  // v2.0 with a tenant in the issuer; takes no `resource`, and names what a token is for by a scope.
  entra: {
    path: '/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0',
    auth: 'client_secret_post',
    scopes: ['api://kernel/.default'],
    resource: false,
    audience: 'api://kernel',
    person: { oid: '00000000-0000-0000-66f3-3332eca7ea81', tid: '9188040d-6c67-4c5b-b112-36a304b66dad', groups: ['b1d2', 'mcp'] },
  },
  // A custom authorization server, whose access tokens are for `api://default`.
  okta: {
    path: '/oauth2/default',
    auth: 'client_secret_basic',
    scopes: [],
    resource: true,
    audience: 'api://default',
    person: { preferred_username: 'ada@example.com', groups: ['Everyone', 'mcp'] },
  },
  // A realm in the issuer; `aud` of access tokens is `account`.
  keycloak: {
    path: '/realms/tools',
    auth: 'client_secret_basic',
    scopes: [],
    resource: true,
    audience: 'account',
    person: { preferred_username: 'ada', azp: 'kernel' },
  },
  // Opaque access tokens: only the ID token is a JWT.
  google: {
    path: '',
    auth: 'client_secret_post',
    scopes: [],
    resource: false,
    audience: undefined,
    person: { email: 'ada@example.com', email_verified: true, hd: 'example.com' },
  },
};
const kind = kinds[process.argv[2]];

const read = async (request) => {
  let text = '';
  for await (const part of request) text += part;
  return text;
};
const say = (response, status, body) => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
};
let handle = (_, response) => say(response, 503, { error: 'no client yet' });
const server = createServer(async (request, response) => {
  try {
    await handle(request, response);
  } catch (error) {
    console.error(error);
    say(response, 500, { error: String(error) });
  }
});
const origin = await new Promise((done) => server.listen(0, '127.0.0.1', () => done(`http://127.0.0.1:${server.address().port}`)));
const issuer = `${origin}${kind.path}`;
// What clients asked with, for the test: never a secret.
const log = [];

function start(redirect) {
  const names = Object.keys(kind.person);
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'kernel',
      client_secret: 'a secret of the provider',
      redirect_uris: [redirect],
      token_endpoint_auth_method: kind.auth,
      grant_types: ['authorization_code', 'refresh_token'],
    }],
    clientAuthMethods: [kind.auth],
    scopes: ['openid', 'offline_access', 'profile', 'email', ...kind.scopes],
    claims: { openid: ['sub', ...names], profile: [], email: [] },
    conformIdTokenClaims: false,
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: false },
      resourceIndicators: {
        enabled: kind.audience !== undefined,
        defaultResource: () => 'urn:resource',
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope: kind.scopes.join(' '), audience: kind.audience, accessTokenFormat: 'jwt' }),
      },
    },
    pkce: { required: () => true },
    interactions: { url: (_, interaction) => `${kind.path}/interaction/${interaction.uid}` },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...kind.person }) }),
    cookies: { keys: ['only for tests'] },
  });
  provider.on('server_error', (_, error) => console.error(error));
  provider.on('grant.error', (_, error) => console.error(error));
  const callback = provider.callback();
  return async (request, response) => {
    const url = new URL(request.url, origin);
    if (url.pathname.endsWith('/auth')) log.push(Object.fromEntries(url.searchParams));
    if (!kind.resource && url.searchParams.has('resource')) {
      return say(response, 400, { error: 'invalid_request', error_description: "the 'resource' parameter is not supported" });
    }
    if (!url.pathname.startsWith(`${kind.path}/`)) return say(response, 404, {});
    if (!url.pathname.startsWith(`${kind.path}/interaction/`)) {
      request.originalUrl = request.url;
      request.url = request.url.slice(kind.path.length);
      return callback(request, response);
    }
    const { prompt, params, session } = await provider.interactionDetails(request, response);
    if (prompt.name === 'login') {
      return provider.interactionFinished(request, response, { login: { accountId: 'subject-of-ada' } }, { mergeWithLastSubmission: false });
    }
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    grant.addOIDCScope((prompt.details.missingOIDCScope ?? []).join(' ') || 'openid');
    grant.addOIDCClaims(prompt.details.missingOIDCClaims ?? []);
    for (const [indicator, scopes] of Object.entries(prompt.details.missingResourceScopes ?? {})) {
      grant.addResourceScope(indicator, scopes.join(' '));
    }
    const consent = { grantId: await grant.save() };
    return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
  };
}

let serve = handle;
handle = async (request, response) => {
  const { pathname } = new URL(request.url, origin);
  if (pathname === '/control/log') return say(response, 200, log);
  if (pathname === '/control/client') {
    serve = start(await read(request));
    return say(response, 200, {});
  }
  return serve(request, response);
};

console.log(JSON.stringify({ issuer }));
// It ends with whoever started it.
process.stdin.on('end', () => process.exit(0)).resume();
