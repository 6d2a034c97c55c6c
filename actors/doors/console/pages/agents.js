// Agents: who has a token, who is here, and what each may use.

import { h, fill, doing, say, dialog, pill, span, when, visible } from '../dom.js';

// A token is about so many characters of a definition; what the model really counts is its own matter.
const PER_TOKEN = 4;

export default function agents({ main, kernel, store, on, signal }) {
  const add = h('button', { class: 'main', onclick: (event) => make(kernel, event.target) }, 'Add an agent…');
  const listed = h('div', {});
  const here = h('div', {});
  main.append(h('div', { class: 'row' }, h('h1', {}, 'Agents'), h('div', { class: 'row end grow' }, add)), listed, h('h2', {}, 'Connected'), here);
  const costs = new Map();

  const read = async () => {
    const [{ agents: all }] = await Promise.all([kernel.ask('mgp/agents/list'), store.readStatus()]);
    if (signal.aborted) return;
    const clients = store.status.clients;
    const ids = [...new Set([...all.map((agent) => agent.id), ...clients.map((client) => client.agent).filter((id) => id.startsWith('agent.'))])];
    const registered = new Map(all.map((agent) => [agent.id, agent]));
    fill(listed, h('div', { class: 'cards' }, ids.map((id) => {
      const agent = registered.get(id);
      const its = clients.filter((client) => client.agent === id);
      const cost = h('p', { class: 'dim', role: 'status' }, costs.get(id));
      const look = h('button', { 'data-key': `cost ${id}`, onclick: (event) => doing(async () => { costs.set(id, await sees(kernel, store, id)); fill(cost, costs.get(id)); event.target.closest('details').open = false; }, event.target) }, 'Count its tools');
      return h('article', { class: 'card' },
        h('header', { class: 'row' }, h('b', {}, id), its.length ? pill('good', `${its.length} connected`) : pill('', 'away'),
          agent?.expired && pill('bad', 'token expired')),
        agent && h('p', { class: 'dim' }, `token made ${when(agent.token_made_at)}`, agent.expires_at && `, good until ${when(agent.expires_at)}`),
        !agent && h('p', { class: 'dim' }, 'It has no token of its own.'),
        cost,
        h('div', { class: 'row' }, h('a', { class: 'button', href: '#/access' }, 'Access'), h('details', { class: 'menu', name: 'agent' }, h('summary', { class: 'button', 'aria-label': `More for ${id}` }, 'More'), h('div', {},
          h('a', { class: 'button', href: `#/activity/agent/${encodeURIComponent(id)}` }, 'Activity'), look,
          agent && h('button', { onclick: (event) => rotate(kernel, id, event.target) }, 'New token…'), agent && h('button', { class: 'bad', onclick: (event) => remove(kernel, id, event.target) }, 'Remove…')))));
    })));
    fill(here, clients.length === 0 ? h('p', { class: 'empty' }, 'Nobody but you.') : h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Connected clients' }, h('table', {},
      h('thead', {}, h('tr', {}, ['Agent', 'Client', 'Speaks', 'Door', 'Since', 'Calls', 'Silent for', 'Tool cache'].map((word) => h('th', { scope: 'col' }, word)))),
      h('tbody', {}, clients.slice(0, 200).map((client) => h('tr', {}, [client.agent, [client.name, client.version].filter(Boolean).join(' ') || '(does not say)', client.speaks ?? '',
        [client.door, client.server ?? client.set].filter(Boolean).join(' '), span(client.since_ms), client.calls, span(client.silent_ms)].map((cell) => h('td', {}, String(cell))), h('td', {}, cache(client))))))));
  };
  on('agents', () => doing(read));
  doing(read);
}

/** The tools that its session holds, because it called or found them (MGP §16.7). */
function cache({ holds, held = [] }) {
  if (!holds) return 'empty';
  return h('details', {}, h('summary', {}, `${holds} tool${holds > 1 ? 's' : ''}`), h('ul', {}, held.map((name) => h('li', {}, visible(name))), holds > held.length && h('li', {}, `and ${holds - held.length} more`)));
}

/** How many tools it may call, and about how long their definitions are. */
async function sees(kernel, store, agent) {
  const [tools, { entries }] = await Promise.all([store.allTools(), kernel.ask('mgp/access/list', { agent_id: agent })]);
  const own = new Map(entries.filter((entry) => entry.entry_type === 'tool_grant' && !entry.conflict).map((entry) => [`${entry.server_id}:${entry.tool_name}`, entry.permission]));
  let count = 0;
  let size = 0;
  for (const [server, its] of tools) {
    const { permission } = await kernel.ask('mgp/access/query', { agent_id: agent, server_id: server });
    for (const tool of its) {
      if ((own.get(`${server}:${tool.own}`) ?? permission) !== 'allow') continue;
      count += 1;
      size += JSON.stringify({ name: tool.name, description: tool.description, inputSchema: tool.inputSchema }).length;
    }
  }
  return `It may call ${count} tools; all their definitions are about ${Math.round(size / PER_TOKEN).toLocaleString()} tokens of context.`;
}

async function make(kernel, button) {
  const name = h('input', { type: 'text', id: 'agent-name', autocomplete: 'off' });
  const days = h('select', { id: 'agent-days' }, [['for ever', ''], ['a day', 86400], ['30 days', 30 * 86400], ['a year', 365 * 86400]].map(([words, secs]) => h('option', { value: secs }, words)));
  const wanted = await dialog('Add an agent', [h('div', { class: 'field' }, h('label', { for: 'agent-name' }, 'Name'), name), h('div', { class: 'field' }, h('label', { for: 'agent-days' }, 'Its token is good'), days)], [
    { text: 'Cancel', says: () => undefined }, { text: 'Add', kind: 'main', says: () => name.value.trim() ? { name: name.value.trim(), ...(days.value && { expires_secs: Number(days.value) }) } : null }]);
  if (wanted) await doing(async () => show(await kernel.ask('mgp/agents/add', wanted)), button);
}

async function rotate(kernel, id, button) {
  const sure = await dialog('Make a new token?', h('p', {}, `The token of ${id} is good for nothing from then on, and what it has under way ends.`), [{ text: 'Leave it', says: () => false }, { text: 'New token', kind: 'bad', says: () => true }]);
  if (sure) await doing(async () => show(await kernel.ask('mgp/agents/token', { name: id, rotate: true })), button);
}

async function remove(kernel, id, button) {
  const sure = await dialog('Remove it?', h('p', {}, `${id} has no token from then on, and what it has under way ends.`), [{ text: 'Leave it', says: () => false }, { text: 'Remove', kind: 'bad', says: () => true }]);
  if (sure) await doing(async () => { await kernel.ask('mgp/agents/remove', { name: id }); say(`${id} is removed`, 'good'); }, button);
}

function show(made) {
  const token = h('input', { type: 'text', readonly: true, value: made.token, class: 'mono', 'aria-label': 'Token' });
  return dialog(`The token of ${made.id}`, [h('p', {}, 'It is shown this once, and kept as a hash. For a client that speaks HTTP: ', h('code', {}, `Authorization: Bearer …`), '. One that starts programs needs no token: ', h('code', {}, `mgp stdio --agent ${made.id.replace(/^agent\./, '')}`), '.'), token], [
    { text: 'Copy', says: () => { token.select(); navigator.clipboard?.writeText(made.token).then(() => say('copied', 'good'), () => {}); return null; } }, { text: 'Done', kind: 'main', says: () => true }]);
}
