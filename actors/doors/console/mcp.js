// The console as a client of MCP: one session over Streamable HTTP (2025-11-25), as any other client has it.

const VERSION = '2025-11-25';
const CAPABILITIES = { elicitation: { form: {}, url: {} }, mgp: { version: '0.2.0', extensions: ['streaming'] } };
// How long to wait before the event stream is opened again, in milliseconds.
const AGAIN = [500, 1000, 2000, 5000, 10000];

export class Refused extends Error {
  constructor(error) {
    super(error?.message ?? 'the kernel refused');
    this.code = error?.code;
    this.data = error?.data;
  }
}

/** The browser is not signed in, or not any more. */
export class SignedOut extends Error {}

/** The events of a body of `text/event-stream`, one object for each. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        const event = { data: '' };
        for (const line of text.slice(0, end).split('\n')) {
          const colon = line.indexOf(':');
          if (colon <= 0) continue;
          const value = line.slice(colon + 1).replace(/^ /, '');
          const name = line.slice(0, colon);
          if (name === 'data') event.data += (event.data && '\n') + value;
          else event[name] = value;
        }
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export class Kernel {
  constructor(pageKey, path = '/mcp', capabilities = CAPABILITIES) {
    this.pageKey = pageKey;
    this.path = path;
    this.capabilities = capabilities;
    this.last = 0;
    this.session = null;
    /** What the kernel sends unasked; set by who listens. */
    this.onMessage = () => {};
    /** 'open', 'lost' or 'out', as it changes. */
    this.onState = () => {};
    /** A question, and of whom it is: resolves to the answer. */
    this.onQuestion = async () => ({ action: 'decline' });
    this.opening = null;
  }

  headers(more) {
    const headers = { 'mgp-console': this.pageKey, ...more };
    if (this.session) {
      headers['mcp-session-id'] = this.session;
      headers['mcp-protocol-version'] = VERSION;
    }
    return headers;
  }

  async fetch(options) {
    const response = await fetch(this.path, { cache: 'no-store', ...options });
    if (response.status === 401 || response.status === 403) {
      this.onState('out');
      throw new SignedOut('this browser is not signed in');
    }
    return response;
  }

  post(message, signal) {
    return this.fetch({
      method: 'POST',
      headers: this.headers({ 'content-type': 'application/json', accept: 'application/json, text/event-stream' }),
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
      signal,
    });
  }

  /** Begins a session, once however many ask. */
  open() {
    this.opening ??= this.begin().finally(() => { this.opening = null; });
    return this.opening;
  }

  async begin() {
    this.session = null;
    const response = await this.post({
      id: ++this.last,
      method: 'initialize',
      params: {
        protocolVersion: VERSION,
        capabilities: this.capabilities,
        clientInfo: { name: 'mgp-console', title: 'MGP console', version: '1' },
      },
    });
    const answer = await response.json();
    if (answer.error) throw new Refused(answer.error);
    this.session = response.headers.get('mcp-session-id');
    await this.post({ method: 'notifications/initialized' });
    return answer.result;
  }

  /** Asks, and resolves to the result. `heard` gets what comes before it; questions meanwhile are those of `from`. */
  async ask(method, params = {}, { heard, signal, token, from } = {}) {
    if (!this.session) await this.open();
    const id = ++this.last;
    if (token) params = { ...params, _meta: { ...params._meta, progressToken: id } };
    // A request that is given up is taken back; closing the connection alone ends nothing in this version.
    const giveUp = () => this.post({ method: 'notifications/cancelled', params: { requestId: id } }).catch(() => {});
    signal?.addEventListener('abort', giveUp, { once: true });
    try {
      let response = await this.post({ id, method, params }, signal);
      if (response.status === 404) {
        // The session has ended: the kernel was started again, or a browser was signed out.
        await this.open();
        response = await this.post({ id, method, params }, signal);
      }
      return await this.answer(id, response, { heard, signal, from });
    } finally {
      signal?.removeEventListener('abort', giveUp);
    }
  }

  async answer(id, response, { heard, signal, from }) {
    const streamed = (response.headers.get('content-type') ?? '').startsWith('text/event-stream');
    if (!streamed) return outcome(await response.json().catch(() => ({ error: { message: `the kernel answered ${response.status}` } })));
    let last;
    for (;;) {
      for await (const event of events(response.body)) {
        last = event.id ?? last;
        if (!event.data) continue;
        const message = JSON.parse(event.data);
        if (message.id === id && !message.method) return outcome(message);
        this.take(message, heard, from);
      }
      // The kernel lets go of long streams; the rest comes to who asks for it (SEP-1699).
      if (last === undefined || signal?.aborted) throw new Refused({ message: 'the answer broke off' });
      await new Promise((done) => setTimeout(done, 300));
      response = await this.fetch({ headers: this.headers({ accept: 'text/event-stream', 'last-event-id': last }), signal });
      if (!response.ok) throw new Refused({ message: 'the answer broke off' });
    }
  }

  take(message, heard, from) {
    if (message.method && message.id !== undefined) this.asked(message, from);
    else if (message.method) (heard ?? this.onMessage)(message);
  }

  async asked({ id, method, params }, from) {
    const reply = (of) => this.post({ id, ...of }).catch(() => {});
    if (method === 'ping') return reply({ result: {} });
    if (method !== 'elicitation/create') return reply({ error: { code: -32601, message: `Method not found: ${method}` } });
    const result = await this.onQuestion(params, from).catch(() => ({ action: 'cancel' }));
    return reply({ result });
  }

  tell(method, params) {
    return this.post({ method, params }).catch(() => {});
  }

  /** Holds the event stream open until `signal`, and opens it again when it is lost. */
  async listen(signal) {
    let tries = 0;
    let last;
    while (!signal.aborted) {
      try {
        if (!this.session) {
          await this.open();
          last = undefined;
        }
        const headers = this.headers({ accept: 'text/event-stream' });
        if (last !== undefined) headers['last-event-id'] = last;
        const response = await this.fetch({ headers, signal });
        if (response.status === 404) {
          this.session = null;
          continue;
        }
        if (!response.ok) throw new Refused({ message: `the event stream: ${response.status}` });
        tries = 0;
        this.onState('open', this.session);
        for await (const event of events(response.body)) {
          last = event.id ?? last;
          if (event.data) this.take(JSON.parse(event.data));
        }
      } catch (error) {
        if (signal.aborted || error instanceof SignedOut) return;
        this.onState('lost');
        await new Promise((done) => setTimeout(done, AGAIN[Math.min(tries++, AGAIN.length - 1)]));
      }
    }
  }

  /** Ends the session; for a page that goes away. */
  leave() {
    if (!this.session) return;
    fetch(this.path, { method: 'DELETE', headers: this.headers(), keepalive: true }).catch(() => {});
    this.session = null;
  }
}

function outcome(message) {
  if (message.error) throw new Refused(message.error);
  return message.result;
}

/** All of a list of MCP, page by page. */
export async function all(kernel, method, member, params = {}) {
  const items = [];
  let cursor;
  do {
    const page = await kernel.ask(method, cursor === undefined ? params : { ...params, cursor });
    items.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return items;
}
