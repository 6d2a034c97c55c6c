// The app of a tool (MCP Apps, SEP-1865): a page of its server in a frame with an origin of its own, and the messages between
// the two. The page sees nothing of the console; what it asks the server for is asked of the operator first, and goes over a
// session at the endpoint of its server, where others do not exist.

import { Kernel, all } from './mcp.js';
import { h, dialog, visible } from './dom.js';
import { text } from './content.js';

const UI = 'io.modelcontextprotocol/ui';
const PAGE = 'text/html;profile=mcp-app';
const VERSION = '2026-01-26';
// Longest page that is shown, in characters.
const LONGEST = 8 << 20;
// Height of a frame, in pixels: before its app says one, and at most.
const [HEIGHT, TALLEST] = [320, 1600];
// Requests of an app that wait for the operator or the server; more are refused.
const REQUESTS = 16;
// Messages of an app within ten seconds; one that sends more is closed, since reading them is work of this page.
const MESSAGES = 1000;

const uriOf = (tool) => tool._meta?.ui?.resourceUri ?? tool._meta?.['ui/resourceUri'];

export const hasApp = (tool) => String(uriOf(tool) ?? '').startsWith('ui://');

/** Opens the app of a tool that was called. Resolves to what is shown, and a way to close it. */
export async function openApp({ pageKey, server, tool, args, result, signal }) {
  const kernel = new Kernel(pageKey, `/mcp/${server}`, { extensions: { [UI]: { mimeTypes: [PAGE] } } });
  await kernel.open();
  try {
    const tools = await all(kernel, 'tools/list', 'tools');
    const its = tools.find(({ name }) => name === tool.own);
    if (!its || !hasApp(its)) throw new Error('the tool has no app any more');
    const { contents } = await kernel.ask('resources/read', { uri: uriOf(its) }, { signal });
    return show(new App({ kernel, server, tools, its, args, result, page: pageOf(contents) }), signal);
  } catch (error) {
    kernel.leave();
    throw error;
  }
}

function pageOf([one, ...more]) {
  if (!one || more.length) throw new Error('the app is not one page');
  if (one.mimeType !== PAGE) throw new Error(`the app is of type ${visible(one.mimeType)}`);
  const html = one.text ?? new TextDecoder().decode(Uint8Array.from(atob(String(one.blob ?? '')), (char) => char.charCodeAt(0)));
  if (html.length > LONGEST) throw new Error('the page of the app is too long');
  return { html, csp: one._meta?.ui?.csp ?? {} };
}

function show(app, signal) {
  const close = async () => { await app.end(); el.remove(); };
  const declared = Object.entries(app.page.csp).filter(([, origins]) => Array.isArray(origins) && origins.length);
  const el = h('section', { class: 'app', 'aria-label': `App of ${app.server}` },
    h('div', { class: 'row' }, h('strong', {}, `App of ${app.server}`), h('span', { class: 'dim grow' }, 'a page of the server, which sees nothing of the console'),
      h('button', { type: 'button', onclick: close }, 'Close the app')),
    declared.length > 0 && h('details', {}, h('summary', {}, 'It asks to reach other places'), declared.map(([name, origins]) => h('p', { class: 'dim' }, `${name}: ${origins.join(' ')}`))),
    app.note, app.frame);
  app.listen();
  signal.addEventListener('abort', () => app.stop(), { once: true });
  return { el, close: () => { app.stop(); el.remove(); } };
}

class App {
  constructor(of) {
    Object.assign(this, of);
    this.note = h('p', { class: 'note', hidden: true, role: 'status' });
    this.frame = h('iframe', { sandbox: 'allow-scripts', title: `App of ${this.server}`, src: `/console/frame?${packed(this.page.csp)}` });
    this.frame.style.height = `${HEIGHT}px`;
    // What the operator decided for as long as the app is open.
    this.decided = new Map();
    this.open = 0;
    this.count = 0;
    this.sent = false;
    this.ended = new AbortController();
    this.tornDown = new Promise((done) => { this.tearDown = done; });
  }

  listen() {
    const { signal } = this.ended;
    addEventListener('message', (event) => this.hear(event), { signal });
    addEventListener('pagehide', () => this.stop(), { signal });
    const beat = setInterval(() => { this.count = 0; }, 10000);
    signal.addEventListener('abort', () => clearInterval(beat));
  }

  /** Lets the app save what it has, for a moment, and ends it. */
  async end() {
    if (this.ended.signal.aborted) return;
    this.post({ id: 'teardown', method: 'ui/resource-teardown', params: { reason: 'closed by the operator' } });
    await Promise.race([this.tornDown, new Promise((done) => setTimeout(done, 500))]);
    this.stop();
  }

  stop(why) {
    if (this.ended.signal.aborted) return;
    this.ended.abort();
    this.frame.remove();
    this.kernel.leave();
    if (why) Object.assign(this.note, { hidden: false, textContent: why });
  }

  post(message) {
    this.frame.contentWindow?.postMessage({ jsonrpc: '2.0', ...message }, '*');
  }

  hear({ source, origin, data }) {
    // The origin of the frame has no name.
    if (source !== this.frame.contentWindow || origin !== 'null' || data?.jsonrpc !== '2.0') return;
    this.count += 1;
    if (this.count > MESSAGES) { this.stop('The app was closed: it sends too many messages.'); return; }
    const { id, method, params } = data;
    if (typeof method !== 'string') { if (id === 'teardown') this.tearDown(); return; }
    if (id === undefined) this.take(method, params);
    else if (typeof id === 'number' || typeof id === 'string') this.reply(id, method, params);
  }

  take(method, params) {
    if (method === 'ui/notifications/sandbox-proxy-ready') {
      // The page is loaded once: a frame that went elsewhere is not given anything.
      if (this.sent) return this.stop('The app was closed: it left its page.');
      this.sent = true;
      this.post({ method: 'ui/notifications/sandbox-resource-ready', params: { html: this.page.html } });
    }
    if (method === 'ui/notifications/initialized') {
      this.post({ method: 'ui/notifications/tool-input', params: { arguments: this.args } });
      this.post({ method: 'ui/notifications/tool-result', params: this.result });
    }
    if (method === 'ui/notifications/size-changed' && params?.height > 0) this.frame.style.height = `${Math.min(Math.ceil(params.height), TALLEST)}px`;
    return undefined;
  }

  async reply(id, method, params) {
    try {
      this.post({ id, result: await this.answer(method, params ?? {}) });
    } catch (error) {
      this.post({ id, error: { code: error.code ?? -32603, message: error.message } });
    }
  }

  async answer(method, params) {
    switch (method) {
      case 'ui/initialize': return this.welcome();
      case 'ping': return {};
      case 'ui/request-display-mode': return { mode: 'inline' };
      case 'tools/call': return this.relay(method, this.ownTool(params.name), { name: params.name, arguments: params.arguments ?? {} });
      case 'resources/read': return this.relay(method, 'its resources', { uri: String(params.uri) });
      default: throw refusal(-32601, `Method not found: ${method}`);
    }
  }

  welcome() {
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    return {
      protocolVersion: VERSION,
      hostInfo: { name: 'mgp-console', version: '1' },
      hostCapabilities: { serverTools: {}, serverResources: {}, sandbox: { csp: this.page.csp } },
      hostContext: {
        toolInfo: { tool: this.its }, theme: document.documentElement.dataset.theme ?? (dark ? 'dark' : 'light'),
        displayMode: 'inline', availableDisplayModes: ['inline'], containerDimensions: { width: this.frame.clientWidth, maxHeight: TALLEST },
        locale: navigator.language, timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone, userAgent: 'mgp-console', platform: 'web',
      },
    };
  }

  /** The name of a tool of this server that is for apps. */
  ownTool(name) {
    const tool = this.tools.find((tool) => tool.name === name);
    const visibility = tool?._meta?.ui?.visibility ?? ['model', 'app'];
    if (!tool || !visibility.includes('app')) throw refusal(-32602, `Unknown tool: ${name}`);
    return `the tool ${tool.name}`;
  }

  async relay(method, what, params) {
    if (this.open >= REQUESTS) throw refusal(-32000, 'too many requests of this app are in flight');
    this.open += 1;
    try {
      if (!await this.allowed(what, params)) throw refusal(-32000, 'denied by the operator');
      return await this.kernel.ask(method, params, { signal: this.ended.signal });
    } finally {
      this.open -= 1;
    }
  }

  /** Asks the operator, once at a time; an answer for all of a name holds until the app is closed. */
  async allowed(what, params) {
    const before = this.asking;
    let done;
    this.asking = new Promise((resolve) => { done = resolve; });
    try {
      await before;
      if (this.decided.has(what)) return this.decided.get(what);
      if (this.ended.signal.aborted) return false;
      const says = await dialog(`The app of ${this.server} asks for ${what}`, text(JSON.stringify(params, null, 2)), [
        { text: 'Deny', says: () => 'deny' },
        { text: 'Allow until it is closed', says: () => 'always' },
        { text: 'Allow once', kind: 'main', says: () => 'once' },
      ]);
      // The app may have been closed behind the question.
      if (this.ended.signal.aborted) return false;
      if (says === 'once') return true;
      this.decided.set(what, says === 'always');
      return says === 'always';
    } finally {
      done();
    }
  }
}

const refusal = (code, message) => Object.assign(new Error(message), { code });

/** JSON as base64 that an address may have. */
function packed(of) {
  const bytes = new TextEncoder().encode(JSON.stringify(of));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
