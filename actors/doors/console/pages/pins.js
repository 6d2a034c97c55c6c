// Pins of one server: the definitions of its tools and skills that count as approved, what changed since, and what to do about it.

import { h, fill, doing, say, pill, virtual, visible } from '../dom.js';
import { drawn } from '../diff.js';

// Pinned tools that are kept in the page: as many as a server can have.
const MOST = 10000;
const MODES = {
  off: 'Pins are off for this server: a changed tool is not noticed.',
  warn: 'A tool that changes waits for your word, and can be called meanwhile.',
  block: 'A tool that changes is neither listed nor called until you accept it.',
};

export function pins({ kernel, store, on, signal }, body, id) {
  const about = h('p', { class: 'dim', role: 'status' }, 'reading…');
  const search = h('input', { type: 'search', placeholder: 'Filter pinned tools', 'aria-label': `Filter the pinned tools of ${id}` });
  const detail = h('section', { class: 'detail', 'aria-label': 'The pinned definition' });
  let all = [];
  let rows = [];
  let at;
  const list = virtual({
    label: `Pinned tools of ${id}, changed ones first`, height: 46, head: ['pin-row', 'State', 'Tool', 'Hash'],
    count: () => rows.length,
    row: (index) => {
      const one = rows[index];
      return h('div', { class: `pin-row ${one.tool === at ? 'chosen' : ''}` }, standing(one),
        h('button', { class: 'plain link', 'aria-pressed': String(one.tool === at), onclick: async () => { await choose(one); if (innerWidth < 900) detail.scrollIntoView({ block: 'start' }); } }, visible(one.tool)),
        h('span', { class: 'dim mono' }, one.pin));
    },
  });
  list.classList.add('tall');
  const filter = () => {
    const word = search.value.trim().toLowerCase();
    rows = all.filter((one) => one.tool.toLowerCase().includes(word));
    list.again();
  };
  const choose = (one) => {
    at = one.tool;
    list.again();
    return doing(() => show(one));
  };

  /** The question is looked up before what is shown: where the tool changes in between, its name is good for nothing. */
  async function show(one) {
    const entry = questionOf(store, id, one.tool);
    const pair = await kernel.ask('mgp/servers/pins/show', { id, tool: one.tool, skills: one.skills });
    if (signal.aborted || at !== one.tool) return;
    fill(detail, h('h2', {}, visible(one.tool)), h('p', { class: 'row' }, standing(one), one.changed?.length > 0 && h('span', {}, `in ${one.changed.join(', ')}`)),
      h('dl', { class: 'facts' }, facts(one).map(([name, value]) => [h('dt', {}, name), h('dd', { class: 'mono' }, value)])),
      definition(pair, one), entry && decisions(kernel, store, entry, one.tool),
      one.denied && h('p', { class: 'note bad' }, 'You refused this definition: agents do not see the tool until its server offers another one, or the approved one again.'));
  }

  async function read() {
    const found = [];
    let [total, mode] = [0, undefined];
    for (const skills of [false, true]) {
      let page;
      let after;
      do {
        page = await kernel.ask('mgp/servers/pins/list', { id, skills, after });
        found.push(...page.pins.map((one) => ({ ...one, skills })));
        after = page.pins.at(-1)?.tool;
      } while (page.has_more && found.length < MOST && !signal.aborted);
      if (signal.aborted) return;
      total += page.total;
      mode ??= page.mode;
    }
    const rank = (one) => one.denied ? 1 : one.now ? 0 : 2;
    all = found.sort((a, b) => rank(a) - rank(b));
    const changed = all.filter((one) => one.now).length;
    about.textContent = `${total.toLocaleString()} pinned, ${changed ? `${changed} not as approved` : 'all as approved'}. ${MODES[mode] ?? 'The server has not listed its tools since the kernel was started.'}`;
    filter();
    const open = all.find((one) => one.tool === at) ?? (all[0]?.now ? all[0] : undefined);
    if (open) await choose(open);
    else if (!detail.childElementCount) fill(detail, h('p', { class: 'dim' }, all.length ? 'Choose a tool: it shows the definition that is pinned.' : 'Nothing is pinned yet.'));
  }

  search.addEventListener('input', () => { filter(); list.top(); });
  body.append(about, h('div', { class: 'split' }, h('div', {}, search, list), detail));
  on(['pending', 'tools'], () => doing(read));
  return doing(read);
}

const standing = (one) => one.denied ? pill('bad', 'refused') : one.now ? pill('warn', 'changed') : pill('good', 'as approved');

const facts = (one) => [['Pinned', one.pin], ['Approved by', one.approved_by ?? 'nobody: as it was first listed'], ['Is now', one.now]].filter(([, value]) => value);

function definition(pair, one) {
  if (pair.approved && pair.now) return drawn(pair.approved, pair.now);
  if (pair.now) return [h('p', { class: 'note warn' }, 'What was approved is too long to be kept; only its hash is. This is what the tool is now:'), drawn('', pair.now)];
  if (pair.approved) return [one.now && h('p', { class: 'note warn' }, 'What it is now is not known: its server is not there. This was approved:'), drawn(pair.approved, pair.approved)];
  return h('p', { class: 'dim' }, 'The definition is too long to be kept; only its hash is.');
}

/** The open question about changed tools of a server that this one is part of. */
export const questionOf = (store, server, tool) =>
  store.pending.pending.find((entry) => entry.subject === 'pins' && entry.server === server && entry.parts.includes(tool));

function decisions(kernel, store, entry, tool) {
  const decide = (method, said, kind) => (event) => doing(async () => {
    await kernel.ask(method, { id: entry.id, only: [tool] });
    say(said, kind);
    await store.readPending();
  }, event.target);
  return h('div', { class: 'row' },
    h('button', { class: 'main', 'data-key': `accept ${tool}`, onclick: decide('mgp/approvals/approve', `${tool} is accepted as it is now`, 'good') }, 'Accept it as it is now'),
    h('button', { class: 'bad', 'data-key': `refuse ${tool}`, onclick: decide('mgp/approvals/deny', `${tool} is refused`, '') }, 'Refuse it'));
}

/** One changed tool of a question, line by line once it is opened. */
export function change(kernel, server, tool) {
  const place = h('div', {});
  const el = h('details', {}, h('summary', {}, `${visible(tool)}, line by line`), place);
  el.addEventListener('toggle', () => {
    if (!el.open || place.childElementCount) return;
    doing(async () => {
      let pair = await kernel.ask('mgp/servers/pins/show', { id: server, tool });
      if (!pair.approved && !pair.now) pair = await kernel.ask('mgp/servers/pins/show', { id: server, tool, skills: true });
      fill(place, definition(pair, { now: true }));
    });
  });
  return el;
}
