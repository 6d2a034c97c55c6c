// Now: what happens, what is wrong, what waits, and the servers.

import { h, live, pill, span, bytes, clock, virtual } from '../dom.js';

const SVG = 'http://www.w3.org/2000/svg';

export default function now({ main, store, on, signal }) {
  const tiles = live(h('div', { class: 'tiles' }), () => figures(store));
  const troubles = live(h('div', {}), () => notes(store));
  const feed = live(h('ol', { class: 'feed' }), () => store.feed.filter(told).slice(0, 40).map(entry));
  const list = serverList(store);
  main.append(h('h1', {}, 'Now'), tiles, troubles,
    h('div', { class: 'columns' },
      h('section', { 'aria-labelledby': 'servers-title' }, h('h2', { id: 'servers-title' }, 'Servers'), list),
      h('section', { 'aria-labelledby': 'feed-title' }, h('h2', { id: 'feed-title' }, 'As it happens'), feed)));
  on(['status', 'pending'], () => { tiles.again(); troubles.again(); });
  on('event', () => { feed.again(); tiles.again(); });
  on('servers', () => { list.again(); tiles.again(); });
  // The clock of the page alone: the last minute moves on, and "since" grows.
  const beat = setInterval(() => { tiles.again(); list.again(); }, 1000);
  signal.addEventListener('abort', () => clearInterval(beat));
}

function figures(store) {
  const { status } = store;
  if (!status) return [];
  const of = store.figures();
  const servers = [...store.servers.values()];
  const up = servers.filter((server) => server.state === 'connected' || server.sleeping).length;
  const asleep = servers.filter((server) => server.sleeping).length;
  const memory = (status.uses?.memory_bytes ?? 0) + servers.reduce((sum, server) => sum + (server.uses?.memory_bytes ?? 0), 0);
  return [
    tile('Calls a second', of.perSecond.toFixed(of.perSecond < 10 ? 1 : 0), spark(of.seconds, of.failed)),
    tile('Latency', of.half === null ? '–' : span(of.half), h('small', {}, of.half === null ? 'no call within a minute' : `99 of 100 within ${span(of.most)}`)),
    tile('Errors', String(of.errors), h('small', {}, `of ${of.calls} calls within a minute`), of.errors ? 'bad' : ''),
    tile('Servers', `${up} / ${servers.length}`, h('small', {}, asleep ? `${asleep} of them sleeping` : 'connected'), up < servers.length ? 'warn' : ''),
    tile('Memory', bytes(memory), h('small', {}, `the kernel ${bytes(status.uses?.memory_bytes ?? 0)}`)),
    tile('Waiting for you', String(store.waiting()), h('a', { href: '#/waiting' }, 'look'), store.waiting() ? 'warn' : ''),
  ];
}

const tile = (title, value, more, kind = '') => h('div', { class: `tile ${kind}` }, h('span', { class: 'tile-title' }, title), h('span', { class: 'tile-value' }, value), more);

/** The calls of each of the last 60 seconds, those that failed in another colour. */
function spark(seconds, failed) {
  const most = Math.max(1, ...seconds);
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 120 24');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `calls in each of the last 60 seconds, ${most} at most`);
  seconds.forEach((count, at) => {
    for (const [of, kind] of [[count, 'all'], [failed[at], 'failed']]) {
      if (!of) continue;
      const bar = document.createElementNS(SVG, 'rect');
      const height = Math.max(1, (of / most) * 24);
      Object.entries({ x: at * 2, y: 24 - height, width: 1.6, height, class: kind }).forEach(([name, value]) => bar.setAttribute(name, value));
      svg.append(bar);
    }
  });
  return svg;
}

function notes(store) {
  const { status } = store;
  if (!status) return [];
  const rows = [
    ...status.troubles.map((text) => ['bad', text]),
    ...status.config_problems.map((text) => ['warn', text]),
    ...(status.untrusted ?? []).map((one) => ['warn', one.why]),
    ...(status.restart ?? []).map((text) => ['', `after the next start: ${text}`]),
  ];
  return rows.map(([kind, text]) => h('p', { class: `note ${kind}` }, text));
}

export function state(server) {
  if (server.sleeping) return pill('', 'sleeping');
  const kinds = { connected: 'good', connecting: 'busy', restarting: 'busy', draining: 'busy', error: 'bad', disconnected: '', registered: '' };
  return pill(kinds[server.state] ?? '', server.health && server.health !== 'healthy' && server.state === 'connected' ? server.health : server.state);
}

/** How long ago, as told then and counted on since. */
export const since = (server) => span(server.since_ms + Date.now() - server.at);

export function why(server) {
  const next = server.next_try_ms === null || server.next_try_ms === undefined ? null : server.next_try_ms - (Date.now() - server.at);
  // The cause comes first: what is behind it may be cut off.
  const parts = [String(server.said ?? server.reason ?? '').replace(/^(restart_limit_exceeded: .*?); last: ([^]*)$/, '$2 · $1')];
  if (server.state === 'connected' && !server.rolling) parts[0] = server.login ? server.login.why : '';
  if (next !== null && next > 0) parts.push(`next try in ${span(next)}`);
  if (server.restarts) parts.push(`${server.restarts} restart${server.restarts > 1 ? 's' : ''}`);
  if (server.rolling) parts.push(server.rolling);
  return parts.filter(Boolean).join(' · ');
}

/** Those in trouble first. */
export function ranked(servers) {
  const rank = { error: 0, restarting: 1, connecting: 2, draining: 3, disconnected: 4, registered: 5, connected: 6 };
  return [...servers].sort((a, b) => (rank[a.state] ?? 0) - (rank[b.state] ?? 0) || a.id.localeCompare(b.id));
}

const rate = (value) => value < 0 ? '–' : !value ? '0' : value < 0.05 ? '<0.1' : value < 10 ? value.toFixed(1) : String(Math.round(value));
const latency = (ms) => ms === null ? '–' : ms === Infinity ? '> 60 s' : ms < 1000 ? `${ms} ms` : span(ms);

/** The columns of `mgp top`. */
const RATES = [['Calls/s', ({ calls }) => rate(calls)], ['Errors/s', ({ errors }) => rate(errors)], ['p50', ({ half }) => latency(half)], ['p99', ({ most }) => latency(most)]];

export function serverList(store, chosen = () => true) {
  let rows = [];
  const list = virtual({
    label: 'Servers', height: 52, calm: true, head: ['server-row', 'State', 'Server', 'Tools', ...RATES.map(([title]) => title), 'Memory', 'Since', 'Why'],
    count: () => rows.length,
    row: (at) => {
      const server = rows[at];
      const rates = store.rates(server.id);
      return h('div', { class: 'server-row' }, state(server),
        h('a', { href: `#/servers/${encodeURIComponent(server.id)}` }, server.id),
        h('span', { class: 'dim nums' }, server.tools),
        RATES.map(([title, read]) => h('span', { class: 'dim nums rate', 'data-title': title }, rates ? read(rates) : '–')),
        h('span', { class: 'dim nums' }, server.uses ? bytes(server.uses.memory_bytes) : ''),
        h('span', { class: 'dim nums' }, since(server)),
        h('span', { class: 'why dim', title: why(server) }, why(server)));
    },
  });
  const draw = list.again;
  const again = () => {
    rows = ranked(store.servers.values()).filter(chosen);
    draw();
  };
  again();
  return Object.assign(list, { again });
}

/** Figures that only moved are no news. */
const told = (event) => event.channel !== 'system.resources' || event['_mgp.severity'] !== 'info';

export function entry(event) {
  const { data } = event;
  const kind = { warning: 'warn', error: 'bad', critical: 'bad' }[event['_mgp.severity']] ?? '';
  const server = data.server_id ?? data.target?.server_id;
  const tool = data.tool_name ?? data.target?.tool_name;
  const who = data.actor?.id;
  const what = [server && tool ? `${server}:${tool}` : server, data.to && `${data.from} → ${data.to}`, who && `by ${who}`,
    data.details?.duration_ms !== undefined && span(data.details.duration_ms), data.details?.reason ?? data.reason].filter(Boolean).join(' · ');
  return h('li', { class: kind }, h('time', { datetime: event.timestamp }, clock(event.timestamp)), ' ', h('b', {}, event.channel), ' ', h('span', {}, what));
}
