// Servers: all of them, and one with everything about it.

import { h, fill, live, say, doing, dialog, span, bytes, clock, virtual, visible } from '../dom.js';
import { serverList, state, since, why } from './now.js';
import { pins } from './pins.js';
import { skills } from './skills.js';
import { tryTool } from './try.js';

export default function servers(page) {
  if (page.rest.length) return one(page);
  const { main, store, on, signal } = page;
  const search = h('input', { type: 'search', placeholder: 'Filter by name or state', 'aria-label': 'Filter servers by name or state' });
  const list = serverList(store, (server) => `${server.id} ${server.sleeping ? 'sleeping' : server.state}`.includes(search.value.trim().toLowerCase()));
  list.classList.add('tall');
  search.addEventListener('input', () => { list.again(); list.top(); });
  main.append(h('div', { class: 'row' }, h('h1', {}, 'Servers'), search), list);
  on('servers', list.again);
  const read = () => store.readMetrics().catch(() => {});
  read();
  const beat = setInterval(read, 2000);
  signal.addEventListener('abort', () => clearInterval(beat));
}

function one(page) {
  const { main, store, on, rest, signal } = page;
  const [id, part] = rest;
  const get = () => store.servers.get(id);
  if (!get()) {
    elsewhere(page, id);
    return;
  }
  const head = live(h('div', {}), () => heading(page, get()));
  const tabs = [['tools', 'Tools'], ['skills', 'Skills'], ['log', 'Log'], ['pins', 'Pins'], ['about', 'About']];
  const shown = tabs.find(([name]) => name === part)?.[0] ?? (part === undefined ? (get().state === 'connected' ? 'tools' : 'log') : 'tools');
  const bar = h('div', { class: 'tabs', role: 'navigation', 'aria-label': `Parts of ${id}` }, tabs.map(([name, title]) =>
    h('a', { href: `#/servers/${encodeURIComponent(id)}/${name}`, 'data-key': `tab ${name}`, 'aria-current': name === shown ? 'page' : undefined }, title)));
  const body = h('div', {});
  main.append(head, bar, body);
  on('servers', () => { if (get()) head.again(); });
  const beat = setInterval(() => { if (get()) head.again(); }, 1000);
  signal.addEventListener('abort', () => clearInterval(beat));
  if (shown === 'tools') tools(page, body, id, part === 'tools' ? rest[2] : undefined);
  if (shown === 'skills') skills(page, body, id);
  if (shown === 'log') log(page, body, id);
  if (shown === 'pins') pins(page, body, id);
  if (shown === 'about') {
    const facts = live(h('div', {}), () => get() ? about(page, get()) : []);
    body.append(facts);
    on(['servers', 'pending'], facts.again);
  }
}

/** A server of another node: this kernel knows its tools, and no more of it. */
async function elsewhere(page, id) {
  const { main, store, rest, signal } = page;
  const about = h('p', { role: 'status' }, 'looking…');
  const body = h('div', {});
  main.append(h('h1', {}, id), about, body);
  const its = await doing(() => store.allTools());
  if (signal.aborted) return;
  if (its?.has(id)) {
    fill(about, 'A server of another node. How it is stands in the console of that node.');
    tools(page, body, id, rest[1] === 'tools' ? rest[2] : undefined);
    const below = h('div', {});
    main.append(below);
    skills(page, below, id, true);
  } else {
    fill(about, 'There is no such server. ', h('a', { href: '#/servers' }, 'All servers'));
  }
}

function heading({ kernel, store }, server) {
  const act = (text, method, params, key, kind = '') => h('button', { class: kind, 'data-key': key, onclick: (event) => doing(async () => {
    await kernel.ask(method, { id: server.id, ...params });
    await store.readServers();
    say(`${server.id}: ${text.toLowerCase()} done`);
  }, event.target) }, text);
  const up = ['connected', 'connecting', 'draining', 'restarting'].includes(server.state);
  return [
    h('div', { class: 'row' }, h('h1', {}, server.id), state(server), h('span', { class: 'dim' }, `for ${since(server)}`),
      h('div', { class: 'row end grow' },
        !up && act('Start', 'mgp/servers/start', {}, 'start', 'main'),
        up && act('Restart', 'mgp/servers/restart', {}, 'restart'),
        up && act('Restart without a gap', 'mgp/servers/restart', { rolling: true }, 'roll'),
        up && act('Stop', 'mgp/servers/stop', {}, 'stop', 'bad'))),
    why(server) && h('p', { class: `note ${server.state === 'error' || server.state === 'restarting' ? 'bad' : ''}` }, why(server)),
    server.login && h('p', { class: 'note warn' }, 'It wants a login: ', h('code', {}, server.login.command)),
  ];
}

async function tools({ store, kernel, on, signal }, body, id, chosen) {
  const search = h('input', { type: 'search', placeholder: 'Filter tools', 'aria-label': `Filter the tools of ${id}` });
  const detail = h('section', { class: 'detail', 'aria-live': 'off' });
  let every = [];
  let rows = [];
  let at = chosen;
  const list = virtual({
    label: `Tools of ${id}`, height: 46, head: ['tool-row', 'Tool', 'Description'],
    count: () => rows.length,
    row: (index) => {
      const tool = rows[index];
      return h('div', { class: `tool-row ${tool.own === at ? 'chosen' : ''}` },
        h('button', { class: 'plain link', 'aria-pressed': String(tool.own === at), onclick: () => pick(tool) }, visible(tool.own)),
        h('span', { class: 'dim one-line' }, visible(String(tool.description ?? tool.title ?? '').split('\n')[0])));
    },
  });
  list.classList.add('tall');
  const filter = () => {
    const word = search.value.trim().toLowerCase();
    rows = every.filter((tool) => `${tool.own} ${tool.description ?? ''}`.toLowerCase().includes(word));
    list.again();
  };
  const pick = (tool) => {
    at = tool.own;
    list.again();
    fill(detail, tryTool({ kernel, tool, server: id, signal }));
  };
  const read = async () => {
    every = (await store.allTools()).get(id) ?? [];
    if (signal.aborted) return;
    filter();
    if (!every.length) fill(detail, h('p', { class: 'dim' }, 'No tools right now.'));
    const first = every.find((tool) => tool.own === at) ?? (at === undefined && innerWidth > 900 ? every[0] : undefined);
    if (first && !detail.childElementCount) pick(first);
  };
  search.addEventListener('input', () => { filter(); list.top(); });
  body.append(h('div', { class: 'split' }, h('div', {}, search, list), detail));
  on('tools', () => doing(read));
  await doing(read);
}

// Lines of a log that are kept in the page.
const LINES = 2000;

function log({ kernel, signal }, body, id) {
  const lines = h('div', { class: 'log', tabindex: '0', role: 'log', 'aria-label': `Log of ${id}` });
  const follow = h('input', { type: 'checkbox', checked: true, id: 'follow' });
  body.append(h('div', { class: 'row' }, h('label', { class: 'check', for: 'follow' }, follow, 'Keep to the newest line')), lines);
  // What comes within one frame is drawn once.
  let fresh = [];
  const draw = () => {
    lines.append(...fresh.map((line) => h('div', { class: line.from }, h('time', {}, clock(line.at_ms)), h('span', {}, line.text))));
    fresh = [];
    while (lines.childElementCount > LINES) lines.firstChild.remove();
    if (follow.checked) lines.scrollTop = lines.scrollHeight;
  };
  const add = (line) => {
    if (fresh.push(line) === 1) requestAnimationFrame(draw);
    if (fresh.length > LINES) fresh.shift();
  };
  const heard = ({ method, params }) => { if (method === 'notifications/mgp.servers.log' && params.id === id) add(params.line); };
  kernel.ask('mgp/servers/logs', { id, lines: 500, follow: true }, { heard, signal }).catch((error) => {
    if (!signal.aborted) add({ at_ms: Date.now(), from: 'kernel', text: `(the log is not followed any more: ${error.message})` });
  });
}

function about({ kernel, store }, server) {
  const facts = [
    ['Runs', (server.runs ?? []).join(' ')], ['Transport', server.transport], ['Process', server.pid],
    ['Uses', server.uses && `${bytes(server.uses.memory_bytes)} of memory, ${server.uses.cpu_seconds.toFixed(1)} s of processor time, ${server.uses.open_descriptors} open files, ${server.uses.children} more processes`],
    ['Calls under way', server.in_flight], ['Waiting for their turn', server.waiting_turn || null],
    ['Says it is', server.server_info], ['Speaks', server.protocol_version], ['Offers', `${server.tools} tools, ${server.resources} resources, ${server.prompts} prompts`],
    ['Version', server.server_info?.includes(' ') ? server.server_info.split(' ').at(-1) : null], ['Trust', server.trust_level], ['Registered by', server.registered_by],
    ['MGP', server.mgp && `${server.mgp.version}: ${server.mgp.extensions.join(', ') || 'nothing more'}`],
    ['Health', server.health], ['Lines that were no messages', server.noise_lines || null], ['Too long messages', server.oversized || null],
    ['Notifications that went to nobody', server.dropped_notifications || null],
  ].filter(([, value]) => value !== null && value !== undefined && value !== '');
  const lists = [['Odd about its lists', server.rejected], ['What agents do not see of it', server.left_out], ['Sandbox holds it to', server.sandbox?.enforced],
    ['What this machine cannot hold it to', server.sandbox?.missing], ['Sandbox, left out', server.sandbox?.notes], ['Also at', server.replicas],
    ['Instances', server.instances?.map((one) => `${one.agent}${one.folder ? ` in ${one.folder}` : ''}: ${one.state} for ${span(one.since_ms)}, ${one.in_flight} calls`)]]
    .filter(([, rows]) => rows?.length);
  const needs = server.mgp?.permissions_required ?? [];
  const waiting = store.pending.pending.filter((entry) => entry.server === server.id);
  return [
    h('dl', { class: 'facts' }, facts.map(([name, value]) => [h('dt', {}, name), h('dd', {}, String(value))])),
    needs.length > 0 && h('section', {}, h('h2', {}, 'Permissions it asks for'), h('ul', {}, needs.map((permission) => h('li', { class: 'row' }, permission,
      h('button', { class: 'small bad', onclick: (event) => takeBack(kernel, server.id, permission, event.target) }, 'Take back'))))),
    waiting.length > 0 && h('p', { class: 'note warn' }, `${waiting.length} question${waiting.length > 1 ? 's' : ''} of it wait${waiting.length > 1 ? '' : 's'} for you: `, h('a', { href: '#/waiting' }, 'look')),
    lists.map(([name, rows]) => h('section', {}, h('h2', {}, name), h('ul', {}, rows.map((row) => h('li', {}, row))))),
  ];
}

async function takeBack(kernel, server, permission, button) {
  const sure = await dialog('Take it back?', h('p', {}, `${server} may not use ${permission} from then on. A server in a sandbox is started again.`), [
    { text: 'Leave it', says: () => false }, { text: 'Take it back', kind: 'bad', says: () => true }]);
  if (sure) await doing(async () => { await kernel.ask('mgp/permission/revoke', { server, permission }); say(`${permission} is taken back`); }, button);
}
