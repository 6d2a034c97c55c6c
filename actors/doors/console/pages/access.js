// Access: who may use what. Each cell is asked of the kernel when it comes into sight.

import { h, fill, doing, say, dialog, pill, virtual } from '../dom.js';

// Questions under way at a time, so that the page's own other requests are not kept waiting.
const AT_ONCE = 4;

export default function access({ main, kernel, store, on, rest }) {
  const [chosenServer, chosenTool] = rest;
  const known = new Map();
  const wanted = [];
  let running = 0;
  let agents = [];
  let tools = new Map();
  let rows = [];
  const open = new Set(chosenServer ? [chosenServer] : []);

  const search = h('input', { type: 'search', placeholder: 'Filter servers and tools', 'aria-label': 'Filter servers and tools' });
  const whose = h('select', { 'aria-label': 'Agents shown' });
  const header = h('div', { class: 'matrix-row matrix-head', 'aria-hidden': 'true' });
  const panel = h('aside', { class: 'detail', 'aria-label': 'Why' });
  const legend = h('p', { class: 'dim legend' }, h('span', { class: 'good' }, '✓ allow'), ', ', h('span', { class: 'bad' }, '✕ deny'), ', ◐ on a condition: what the agent may do. A border: an entry for this cell; without one, a wider rule decides. Choose a cell to see the rule and to change it.');
  const list = virtual({ label: 'Servers and tools, with what each agent may', height: 42, count: () => rows.length, row });
  list.classList.add('tall');
  const matrix = h('div', { class: 'matrix' }, header, list);
  main.append(h('div', { class: 'row' }, h('h1', {}, 'Access'), search, whose), legend, h('div', { class: 'split' }, matrix, panel));

  // As wide as its head: the columns of both scroll together.
  const align = () => { list.style.minWidth = ''; list.style.minWidth = `${header.scrollWidth}px`; };
  new ResizeObserver(align).observe(matrix);

  const shownAgents = () => whose.value ? [whose.value] : agents;
  const cellKey = (agent, server, tool) => `${agent}\n${server}\n${tool ?? ''}`;

  function row(at) {
    const { server, tool } = rows[at];
    const name = tool ? h('span', { class: 'tool-name' }, tool) : h('button', { class: 'plain link', 'aria-expanded': String(open.has(server)), onclick: () => { if (!open.delete(server)) open.add(server); build(); } }, `${open.has(server) ? '▾' : '▸'} ${server}`);
    return h('div', { class: `matrix-row ${tool ? 'of-tool' : ''}` }, h('div', { class: 'matrix-name' }, name), shownAgents().map((agent) => cell(agent, server, tool)));
  }

  function cell(agent, server, tool) {
    const key = cellKey(agent, server, tool);
    const of = known.get(key);
    if (of === undefined) { known.set(key, null); wanted.push({ agent, server, tool, key }); pump(); }
    const word = of ? (of.error ? '?' : of.when ? 'on a condition' : of.permission === 'allow' && waits(server) ? 'waits for approval' : of.permission) : '…';
    const own = of && (tool ? of.source === 'tool_grant' : of.source === 'server_grant');
    return h('div', { class: 'cell' }, h('button', {
      class: `cell-button ${of?.when ? '' : of?.permission ?? ''} ${own ? 'own' : ''}`, 'data-key': key,
      'aria-label': `${agent}, ${server}${tool ? `, ${tool}` : ''}: ${word}${own ? ', by an entry of its own' : ''}`,
      onclick: () => explain(agent, server, tool),
    }, word === 'allow' ? '✓ allow' : word === 'on a condition' ? '◐ on a condition' : word === 'deny' ? '✕ deny' : word === 'waits for approval' ? '… waits for approval' : word));
  }

  /** Whether a server takes no calls before the operator has approved it. */
  function waits(server) {
    const asks = (entry) => entry.server === server && ['permissions', 'registration'].includes(entry.subject);
    return store.servers.get(server)?.state !== 'connected' && store.pending.pending.some(asks);
  }

  function pump() {
    while (running < AT_ONCE && wanted.length) {
      const { agent, server, tool, key } = wanted.pop();
      running += 1;
      kernel.ask('mgp/access/query', { agent_id: agent, server_id: server, ...(tool && { tool_name: tool }) })
        .then((standing) => known.set(key, standing), (error) => known.set(key, { error: error.message }))
        .finally(() => { running -= 1; again(); pump(); });
    }
  }
  let due = false;
  // Answers come faster than rows are worth drawing for each.
  const again = () => { if (!due) { due = true; setTimeout(() => { due = false; if (list.isConnected) list.again(); }, 150); } };

  function build() {
    const word = search.value.trim().toLowerCase();
    rows = [];
    for (const server of [...new Set([...store.servers.keys(), ...tools.keys()])].sort()) {
      const its = (tools.get(server) ?? []).map((tool) => tool.own);
      const found = word ? its.filter((tool) => tool.toLowerCase().includes(word)) : its;
      if (word && !server.toLowerCase().includes(word) && !found.length) continue;
      rows.push({ server });
      if (open.has(server) || (word && found.length && !server.toLowerCase().includes(word))) {
        for (const tool of word && found.length ? found : its) rows.push({ server, tool });
      }
    }
    fill(header, h('div', { class: 'matrix-name dim' }, 'server'), shownAgents().map((agent) => h('div', { class: 'cell', title: agent }, agent.replace(/^agent\./, ''))));
    align();
    list.again();
  }

  async function explain(agent, server, tool) {
    const where = { agent_id: agent, server_id: server, ...(tool && { tool_name: tool }) };
    const told = await doing(() => kernel.ask('mgp/access/explain', where));
    if (!told) return;
    const entry_type = tool ? 'tool_grant' : 'server_grant';
    const own = told.source === entry_type;
    const other = told.permission === 'allow' ? 'deny' : 'allow';
    const conditions = told.conditions ?? [];
    const when = h('input', { type: 'text', value: own && conditions.length === 1 ? conditions[0].when : '', placeholder: 'Only when, as in inside(args.path, "~/notes")', 'aria-label': 'Only when' });
    const because = h('input', { type: 'text', placeholder: 'Why (for those who read it later)', 'aria-label': 'Why' });
    const length = h('select', { 'aria-label': 'For how long' }, [['for good', ''], ['for an hour', 3600e3], ['for a day', 86400e3], ['for 30 days', 30 * 86400e3]].map(([words, ms]) => h('option', { value: ms }, words)));
    const change = (permission) => doing(async () => {
      if (!await sure(await preview(agent, server, tool, permission))) return;
      const expires_at = length.value ? new Date(Date.now() + Number(length.value)).toISOString() : undefined;
      const granted = await kernel.ask('mgp/access/grant', { ...where, entry_type, permission, yet_unknown: false, ...(permission === 'allow' && when.value && { when: when.value }), ...(because.value && { justification: because.value }), ...(expires_at && { expires_at }) });
      say(`${agent}: ${permission} ${server}${tool ? `:${tool}` : ''}`, 'good');
      granted.notes?.forEach((note) => say(note));
      forget(); await explain(agent, server, tool);
    });
    const lapse = () => doing(async () => {
      if (!await sure(await preview(agent, server, tool, null))) return;
      await kernel.ask('mgp/access/revoke', { ...where, entry_type });
      say('The entry is taken back', 'good');
      forget(); await explain(agent, server, tool);
    });
    fill(panel,
      h('h2', {}, server, tool && `:${tool}`), h('p', { class: 'row' }, h('b', {}, agent), told.waits ? pill('warn', 'waits for approval') : conditions.length ? pill('warn', 'on a condition') : pill(told.permission === 'allow' ? 'good' : 'bad', told.permission)),
      told.waits && h('p', { class: 'note warn' }, told.waits),
      h('p', { class: 'asked' }, told.rule),
      conditions.map((one) => h('p', { class: 'note' }, 'allowed when ', h('code', {}, one.when))),
      h('details', { open: true }, h('summary', {}, 'What was looked at'), h('ol', {}, told.considered.map((sentence) => h('li', {}, sentence)))),
      (told.notes ?? []).map((note) => h('p', { class: 'note warn' }, note)),
      h('div', { class: 'field' }, when), h('div', { class: 'field' }, because), h('div', { class: 'row' }, length,
        h('button', { class: other === 'deny' ? 'bad' : 'main', 'data-key': 'change', onclick: () => change(other) }, other === 'deny' ? 'Deny…' : 'Allow…'),
        !own && h('button', { 'data-key': 'fix', onclick: () => change(told.permission) }, told.permission === 'allow' ? 'Allow by an entry…' : 'Deny by an entry…'),
        own && conditions.length > 0 && h('button', { class: 'bad', onclick: () => change('deny') }, 'Deny…'),
        own && h('button', { 'data-key': 'lapse', onclick: lapse }, 'Let lapse…')));
    if (innerWidth < 900) panel.scrollIntoView({ block: 'start' });
  }

  const sure = (told) => dialog('What this would do', told, [{ text: 'Leave it as it is', says: () => false }, { text: 'Do it', kind: 'main', says: () => true }]);

  /** What a change would do, before it is made; `null` takes the entry back. */
  async function preview(agent, server, tool, permission) {
    const listed = await kernel.ask('mgp/access/list', { agent_id: agent, server_id: server });
    const entries = listed.entries.filter((entry) => !entry.conflict);
    const rest = permission ?? await without(agent, server, tool, entries);
    if (tool) {
      const now = (await kernel.ask('mgp/access/query', { agent_id: agent, server_id: server, tool_name: tool })).permission;
      return [h('p', {}, `${agent} · ${server}:${tool}: ${now} → ${rest}`), h('p', { class: 'dim' }, now === rest ? 'Nothing changes now; the answer no longer depends on other rules.' : rest === 'deny' ? 'It leaves the lists of that agent at once, and calls that wait do not leave any more.' : 'It comes into the lists of that agent at once.')];
    }
    const own = entries.filter((entry) => entry.entry_type === 'tool_grant');
    const kept = new Set(own.map((entry) => entry.tool_name));
    const its = (tools.get(server) ?? []).map((one) => one.own).filter((one) => !kept.has(one));
    return [h('p', {}, `${agent} · ${server}: its ${its.length} tools without an entry of their own → ${rest}`),
      own.length > 0 && [h('p', {}, 'These keep what their own entries say:'), h('ul', {}, own.map((entry) => h('li', {}, `${entry.tool_name}: ${entry.permission}`)))]];
  }

  /** What holds without the entry: the next rule of the explanation. */
  async function without(agent, server, tool, entries) {
    if (tool) {
      const of = entries.find((entry) => entry.entry_type === 'server_grant');
      if (of) return of.permission;
    }
    const { considered } = await kernel.ask('mgp/access/explain', { agent_id: agent, server_id: server });
    return /opt-in/.test(considered.at(-1)) ? 'deny' : 'allow';
  }

  function forget() { known.clear(); wanted.length = 0; again(); }

  async function read() {
    const [listed, grants] = await Promise.all([kernel.ask('mgp/agents/list'), kernel.ask('mgp/access/list')]);
    const names = [...listed.agents.map((agent) => agent.id), ...grants.entries.map((entry) => entry.agent_id), 'agent.local'];
    agents = [...new Set(names)].sort();
    const before = whose.value;
    fill(whose, h('option', { value: '' }, `all ${agents.length} agents`), agents.map((agent) => h('option', { value: agent }, agent)));
    whose.value = before || (innerWidth < 700 ? agents[0] : '');
    build();
    tools = await store.allTools();
    build();
    if (chosenServer && agents.length) explain(shownAgents()[0], chosenServer, chosenTool);
  }

  search.addEventListener('input', build);
  whose.addEventListener('change', build);
  on('access', forget);
  on('servers', build);
  on('pending', again);
  on('tools', async () => { tools = await store.allTools(); build(); });
  on('agents', () => doing(read));
  doing(read);
}
