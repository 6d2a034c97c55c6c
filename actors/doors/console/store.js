// What the console knows of the kernel: read once, and again when an event says that it is another.

import { all } from './mcp.js';

const PENDING = 'mgp://kernel/pending';
// Calls remembered for the figures of the last minute: those of a busy kernel, and no more.
const CALLS = 20000;
const MINUTE = 60000;

export class Store {
  constructor(kernel) {
    this.kernel = kernel;
    this.status = null;
    this.servers = new Map();
    this.pending = { pending: [], logins: {} };
    this.joining = [];
    this.recent = [];
    this.looks = [];
    this.feed = [];
    this.underWay = 0;
    this.tools = null;
    this.hearers = new Map();
    this.due = new Map();
    kernel.onMessage = (message) => this.hear(message);
  }

  /** Calls `hear` whenever one of these topics is another, until what it returns is called. */
  on(topics, hear) {
    const each = [topics].flat();
    for (const topic of each) {
      if (!this.hearers.has(topic)) this.hearers.set(topic, new Set());
      this.hearers.get(topic).add(hear);
    }
    return () => each.forEach((topic) => this.hearers.get(topic).delete(hear));
  }

  changed(topic, of) {
    for (const hear of this.hearers.get(topic) ?? []) hear(of);
  }

  /** After each (re)connection: follow what happens, then read what is. */
  async begin() {
    const { kernel } = this;
    await kernel.ask('mgp/events/subscribe', { channels: ['tool.*', 'security.*', 'system.*'] });
    await kernel.ask('resources/subscribe', { uri: PENDING }).catch(() => {});
    this.tools = null;
    this.looks = [];
    await Promise.all([this.readStatus(), this.readPending(), this.readNodes()]);
    this.changed('all');
  }

  /** After a while in which nothing was heard. */
  async catchUp() {
    this.tools = null;
    await Promise.all([this.readStatus(), this.readPending(), this.readNodes()]).catch(() => {});
    for (const topic of ['agents', 'access', 'tools']) this.changed(topic);
  }

  async readStatus() {
    this.status = await this.kernel.ask('mgp/kernel/status');
    this.take(this.status.servers);
    this.changed('status');
  }

  async readServers() {
    this.take((await this.kernel.ask('mgp/servers/list')).servers);
  }

  take(servers) {
    const at = Date.now();
    this.servers = new Map(servers.map((server) => [server.id, { ...server, at }]));
    this.changed('servers');
  }

  async readPending() {
    const { pending, logins, nodes } = await this.kernel.ask('mgp/approvals/list');
    this.pending = { pending, logins: logins ?? {} };
    this.joining = nodes ?? [];
    this.changed('pending');
  }

  /** Nodes that want to join. */
  async readNodes() {
    const { waiting } = await this.kernel.ask('mgp/kernel/nodes/list').catch(() => ({}));
    this.joining = waiting ?? [];
    for (const topic of ['cluster', 'pending']) this.changed(topic);
  }

  waiting() {
    return this.pending.pending.length + Object.keys(this.pending.logins).length + this.joining.length;
  }

  /** Does it soon, and once for any number of reasons. */
  soon(name, wait, read) {
    if (this.due.has(name)) return;
    this.due.set(name, setTimeout(() => {
      this.due.delete(name);
      read.call(this).catch(() => {});
    }, wait));
  }

  hear({ method, params }) {
    if (method === 'notifications/resources/updated' && params.uri === PENDING) this.soon('pending', 50, this.readPending);
    if (method === 'notifications/mgp.event') this.happened(params);
  }

  happened(event) {
    const { channel, data } = event;
    const at = Date.parse(event.timestamp);
    if (channel === 'tool.started') this.underWay += 1;
    if (channel === 'tool.completed' || channel === 'tool.failed') {
      this.underWay = Math.max(0, this.underWay - 1);
      this.recent.push({ at, ms: data.details?.duration_ms ?? 0, bad: channel === 'tool.failed', server: data.target?.server_id });
      if (this.recent.length > CALLS) this.recent.splice(0, CALLS / 10);
    }
    // We fell behind what is kept, and hear no more: read all anew.
    if (channel === 'system.subscription_ended') this.soon('begin', 1000, this.begin);
    if (channel === 'system.lists_changed') {
      this.tools = null;
      this.changed('tools');
    }
    if (channel.startsWith('system.server') || channel === 'system.lists_changed') this.soon('servers', Math.max(400, 5 * this.servers.size), this.readServers);
    if (channel === 'system.resources') this.soon('servers', 3000, this.readServers);
    if (channel === 'security.agents_changed') this.changed('agents');
    if (channel === 'security.access_changed') this.changed('access');
    if (channel === 'system.cluster') this.soon('cluster', 200, this.readNodes);
    if (channel === 'security.tool_changed' || channel === 'security.permission_changed') this.soon('pending', 100, this.readPending);
    this.feed.unshift(event);
    if (this.feed.length > 200) this.feed.length = 200;
    this.changed('event', event);
  }

  /** Calls, errors and latency of the last minute. */
  figures() {
    const now = Date.now();
    while (this.recent.length && this.recent[0].at < now - MINUTE) this.recent.shift();
    const times = this.recent.map((call) => call.ms).sort((a, b) => a - b);
    const part = (share) => times.length ? times[Math.min(times.length - 1, Math.floor(times.length * share))] : null;
    const seconds = new Array(60).fill(0);
    const failed = new Array(60).fill(0);
    for (const call of this.recent) {
      const slot = 59 - Math.floor((now - call.at) / 1000);
      if (slot >= 0 && slot < 60) { seconds[slot] += 1; if (call.bad) failed[slot] += 1; }
    }
    return {
      calls: this.recent.length,
      perSecond: this.recent.length / 60,
      errors: this.recent.filter((call) => call.bad).length,
      half: part(0.5), most: part(0.99), seconds, failed,
    };
  }

  /** Reads what the kernel counted of each server, as `mgp top` does. */
  async readMetrics() {
    const { text } = await this.kernel.ask('mgp/kernel/metrics');
    const at = Date.now();
    this.looks.push({ at, calls: counts(text) });
    while (this.looks.length > 2 && this.looks[0].at < at - MINUTE) this.looks.shift();
    this.changed('servers');
  }

  /** Calls and errors a second and latency of one server within the last minute; null where two readings are missing. */
  rates(id) {
    if (this.looks.length < 2) return null;
    const [before, now] = [this.looks[0], this.looks.at(-1)];
    const [was, is] = [before.calls.get(id) ?? NONE, now.calls.get(id) ?? NONE];
    const seconds = (now.at - before.at) / 1000;
    const bounds = [...is.within.keys()].sort((a, b) => a - b).map((bound) => [bound, is.within.get(bound) - (was.within.get(bound) ?? 0)]);
    const total = bounds.at(-1)?.[1] ?? 0;
    const part = (share) => total > 0 ? bounds.find(([, count]) => count >= total * share)[0] * 1000 : null;
    return { calls: (is.ended - was.ended) / seconds, errors: (is.errors - was.errors) / seconds, half: part(0.5), most: part(0.99) };
  }

  /** Every tool with its definition, by server: read when first asked for, and after the lists changed. */
  async allTools() {
    this.tools ??= (async () => {
      const [listed, names] = await Promise.all([all(this.kernel, 'tools/list', 'tools'), this.kernel.ask('mgp/names/list')]);
      const known = new Map(names.tools.map((named) => [named.shown, named]));
      const byServer = new Map();
      for (const tool of listed) {
        const named = known.get(tool.name);
        if (!named) continue;
        if (!byServer.has(named.server_id)) byServer.set(named.server_id, []);
        byServer.get(named.server_id).push({ ...tool, own: named.tool_id.slice(named.server_id.length + 1) });
      }
      return byServer;
    })();
    try {
      return await this.tools;
    } catch (error) {
      this.tools = null;
      throw error;
    }
  }
}

const NONE = { ended: 0, errors: 0, within: new Map() };

/** Calls, errors and latency of each server out of the Prometheus text. */
function counts(text) {
  const calls = new Map();
  for (const [, name, server, labels, value] of text.matchAll(/^mgp_(calls_total|call_duration_seconds_bucket)\{server="([^"\\]*)",(.*)\} ([\d.]+)$/gm)) {
    if (!calls.has(server)) calls.set(server, { ended: 0, errors: 0, within: new Map() });
    const of = calls.get(server);
    if (name === 'calls_total') {
      of.ended += Number(value);
      if (!labels.endsWith('outcome="success"')) of.errors += Number(value);
    } else {
      const bound = Number(labels.split('le="').at(-1).slice(0, -1).replace('+Inf', 'Infinity'));
      of.within.set(bound, (of.within.get(bound) ?? 0) + Number(value));
    }
  }
  return calls;
}
