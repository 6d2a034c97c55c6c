// Activity: the audit log by pages, and what belongs to one call.

import { h, fill, doing, pill, span, when, virtual, visible } from '../dom.js';
import { text } from '../content.js';

// Records on one page of the log, and in the browser at most: who wants older ones says which.
const PAGE = 200;
const MOST = 20000;
const RESULTS = ['SUCCESS', 'FAILURE', 'BLOCKED', 'DENIED', 'TIMEOUT', 'CANCELLED'];

export default function activity({ main, kernel, store, on, rest, signal }) {
  const field = (name, placeholder, value = '') => h('input', { type: name === 'trace' ? 'text' : 'search', name, placeholder, value, 'aria-label': placeholder, autocomplete: 'off' });
  const given = rest[0] ? { [rest[0]]: rest[1] } : {};
  const fields = [field('agent', 'Agent', given.agent), field('server', 'Server', given.server), field('tool', 'Tool', given.tool), field('trace', 'Trace', given.trace)];
  const moment = (words) => h('input', { type: 'datetime-local', 'aria-label': words });
  const [since, until] = [moment('Since'), moment('Until')];
  const result = h('select', { 'aria-label': 'How it ended' }, h('option', { value: '' }, 'any result'), RESULTS.map((word) => h('option', { value: word, selected: given.result === word }, word.toLowerCase())));
  const fresh = h('button', { class: 'small', hidden: true, onclick: () => begin() }, '');
  const count = h('p', { class: 'dim', role: 'status' });
  const detail = h('section', { class: 'detail' }, h('p', { class: 'dim' }, 'Choose a record.'));
  let rows = [];
  let cursor;
  let reading = false;
  let arrived = 0;
  let turn = 0;
  const list = virtual({ label: 'Records, newest first', height: 40, head: ['record-row', 'Time', 'Result', 'Event', 'Agent, server and tool'], count: () => rows.length, row, more: () => { if (cursor && !reading && rows.length < MOST) next(); } });
  list.classList.add('tall');
  const search = h('form', { class: 'row filters', onsubmit: (event) => { event.preventDefault(); begin(); } }, fields, result,
    h('label', { class: 'check' }, 'since ', since), h('label', { class: 'check' }, 'until ', until), h('button', { type: 'submit', class: 'main' }, 'Find'), fresh);
  main.append(h('div', { class: 'row' }, h('h1', {}, 'Activity'), h('div', { class: 'row end grow' }, h('button', { onclick: (event) => head(event.target) }, 'Where the log stands'))), search, count, h('div', { class: 'split wide-left' }, list, detail));

  function row(at) {
    const event = rows[at];
    const { actor, target, details } = event;
    return h('div', { class: 'record-row' }, h('time', { class: 'dim nums', datetime: event.timestamp }, when(event.timestamp)),
      pill(kind(event.result), event.result.toLowerCase()),
      h('button', { class: 'plain link', onclick: () => choose(event) }, event.event_type.replace(/^dev\.cloto\.mgp\./, '')),
      h('span', { class: 'one-line' }, [actor.id, what(target), details?.duration_ms !== undefined && span(details.duration_ms)].filter(Boolean).join(' · ')));
  }

  function filters() {
    const said = Object.fromEntries(fields.filter((one) => one.value.trim()).map((one) => [one.name, one.value.trim()]));
    if (said.agent && !said.agent.includes('.') && said.agent !== 'operator') said.agent = `agent.${said.agent}`;
    if (result.value) said.result = result.value;
    if (since.value) said.since_ms = new Date(since.value).getTime();
    if (until.value) said.until_ms = new Date(until.value).getTime();
    return said;
  }

  async function begin() {
    turn += 1;
    rows = [];
    cursor = undefined;
    arrived = 0;
    fresh.hidden = true;
    list.top();
    await next();
  }

  /** The next page. The first one is asked for again while the kernel still reads its log for it: an answer waits for a second of that. */
  async function next() {
    const mine = turn;
    const from = cursor;
    reading = true;
    await doing(async () => {
      for (let through = 0; ;) {
        const found = await kernel.ask('mgp/audit/find', { ...filters(), limit: PAGE, ...(from && { cursor: from }) });
        if (mine !== turn || signal.aborted) return;
        if (!from) rows = [];
        rows.push(...found.events);
        cursor = found.next_cursor;
        const grows = !from && found.complete_through < found.newest && found.complete_through > through;
        through = found.complete_through;
        counted(found, grows);
        if (!grows) return;
        list.again();
      }
    });
    if (mine !== turn) return;
    reading = false;
    list.again();
  }

  function counted(found, grows) {
    const more = rows.length >= MOST ? `; ${MOST.toLocaleString()} are as many as are shown at once, say until when for older ones` : !cursor ? '' : rows.length ? ', more as you scroll' : ' so far, looking further back…';
    const words = `${rows.length.toLocaleString()} record${rows.length === 1 ? '' : 's'}${more}. The log has ${found.newest.toLocaleString()}.${found.note ? ` ${found.note}` : ''}`;
    fill(count, words, grows && [' ', h('progress', { 'aria-label': 'Records that were read', max: found.newest, value: found.complete_through })]);
  }

  async function choose(event) {
    const found = await doing(() => kernel.ask('mgp/audit/find', { trace: event.trace_id, limit: 200 }));
    const its = (found?.events ?? [event]).reverse();
    fill(detail, h('h2', {}, event.event_type), h('p', { class: 'row' }, pill(kind(event.result), event.result.toLowerCase()), h('span', { class: 'dim' }, `number ${event._mgp?.seq ?? ''}`)),
      inWords(event), waterfall(its), parts(event), h('details', {}, h('summary', {}, 'The record as it was written'), text(JSON.stringify(event, null, 2))),
      h('div', { class: 'row' }, event.target.server_id && h('a', { class: 'button', href: `#/servers/${encodeURIComponent(event.target.server_id)}/log` }, 'Log of the server'),
        event.target.tool_name && event.actor.type === 'agent' && h('a', { class: 'button', href: `#/access/${encodeURIComponent(event.target.server_id)}/${encodeURIComponent(event.target.tool_name)}` }, 'Why it may or may not')));
    if (innerWidth < 900) detail.scrollIntoView({ block: 'start' });
  }

  async function head(button) {
    const last = await doing(() => kernel.ask('mgp/audit/last'), button);
    if (!last) return;
    const problems = (store.status?.troubles ?? []).filter((trouble) => /audit/.test(trouble));
    fill(detail, h('h2', {}, 'The log'), h('dl', { class: 'facts' }, h('dt', {}, 'Last record'), h('dd', {}, String(last.sequence)), h('dt', {}, 'Its hash'), h('dd', { class: 'mono wrap' }, last.hash)),
      check(),
      problems.length ? problems.map((problem) => h('p', { class: 'note bad' }, problem)) : h('p', { class: 'note good' }, 'The kernel found nothing wrong with it.'),
      h('p', {}, 'Here the kernel reads its own log. To look at it without trusting the kernel that runs:'), h('pre', { class: 'command' }, 'mgp audit verify'));
  }

  /** Reads the whole log, and says how far it is. */
  function check() {
    const place = h('div', { role: 'status' });
    const stop = new AbortController();
    signal.addEventListener('abort', () => stop.abort(), { once: true });
    const verify = (button) => doing(async () => {
      const bar = h('progress', { 'aria-label': 'Files of the log that were read' });
      const word = h('span', { class: 'dim' }, 'reading…');
      fill(place, h('div', { class: 'row' }, bar, word));
      const heard = ({ method, params }) => {
        if (method !== 'notifications/progress' || !params.total) return;
        bar.max = params.total;
        bar.value = params.progress;
        word.textContent = visible(params.message);
      };
      try {
        const found = await kernel.ask('mgp/audit/verify', {}, { heard, signal: stop.signal, token: true });
        const words = `${found.records.toLocaleString()} records are as they were written, the last is ${found.last.toLocaleString()}; read in ${span(found.took_ms)}.`;
        fill(place, h('p', { class: `note ${found.whole ? 'good' : 'bad'}` }, found.whole ? `Whole: ${words}` : words),
          found.faults.map((fault) => h('p', { class: 'note bad' }, fault)), found.more > 0 && h('p', { class: 'note bad' }, `and ${found.more} more`),
          found.acknowledged.map((fault) => h('p', { class: 'note' }, `${fault} (acknowledged)`)));
      } catch (error) {
        fill(place, h('p', { class: 'note bad' }, error.message));
      }
    }, button);
    return [h('div', { class: 'row' }, h('button', { class: 'main', onclick: (event) => verify(event.target) }, 'Verify every record')), place];
  }

  on('event', (event) => {
    if (event['_mgp.cursor'] === undefined) return;
    arrived += 1;
    fresh.hidden = false;
    fresh.textContent = `${arrived} new`;
  });
  begin();
}

const kind = (outcome) => ({ SUCCESS: 'good', FAILURE: 'bad', BLOCKED: 'warn', DENIED: 'warn', TIMEOUT: 'bad', CANCELLED: '' })[outcome] ?? '';
const what = (target) => target.server_id ? `${target.server_id}${target.tool_name ? `:${target.tool_name}` : ''}` : target.agent_id ?? '';

/** The records of one trace, in time: each bar ends when it was written, and is as long as it took. */
function waterfall(events) {
  const bars = events.map((event) => {
    const end = Date.parse(event.timestamp);
    return { event, end, begin: end - (event.details?.duration_ms ?? 0) };
  });
  const from = Math.min(...bars.map((bar) => bar.begin));
  const whole = Math.max(1, Math.max(...bars.map((bar) => bar.end)) - from);
  return h('ol', { class: 'waterfall', 'aria-label': 'What belongs to this trace' }, bars.map(({ event, begin, end }) => {
    const bar = h('span', { class: `bar ${kind(event.result)}` });
    bar.style.marginLeft = `${((begin - from) / whole) * 96}%`;
    bar.style.width = `${Math.max(4, ((end - begin) / whole) * 96)}%`;
    return h('li', {}, h('span', { class: 'one-line' }, [event.event_type.replace(/^dev\.cloto\.mgp\./, ''), what(event.target), event.details?.duration_ms !== undefined && span(event.details.duration_ms), event.details?.node].filter(Boolean).join(' · ')), h('span', { class: 'track' }, bar));
  }));
}

/** What the record says beside its kind: who, what, how it ended and why. */
function inWords({ timestamp, actor, target, trace_id, details }) {
  const plain = ([, value]) => ['string', 'number', 'boolean'].includes(typeof value);
  const rows = [['Who', actor.id], ['What', what(target)], ['When', when(timestamp)], ['Took', details?.duration_ms !== undefined && span(details.duration_ms)],
    ...Object.entries(details ?? {}).filter(([name]) => name !== 'duration_ms').filter(plain).map(([name, value]) => [name.replaceAll('_', ' '), visible(value)]), ['Trace', trace_id]];
  return h('dl', { class: 'facts' }, rows.filter(([, value]) => value || value === 0).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

const PARTS = { door: 'at the door', checks: 'checks, a person’s yes among them', queue: 'waited for its turn', server: 'server', answer: 'answer checked and cut', rest: 'the kernel besides' };

/** The parts that a record tells, one behind the other from `from` on; the last one is what of the whole is in none of them. */
function measured(told, whole, from, least) {
  const parts = Object.keys(PARTS).filter((name) => told[name] > 0).map((name) => ({ name, words: PARTS[name], us: told[name] }));
  const rest = whole - parts.reduce((sum, one) => sum + one.us, 0);
  if (rest >= least) parts.push({ name: 'rest', words: PARTS.rest, us: rest });
  let before = from;
  return parts.map((part) => ({ ...part, from: (before += part.us) - part.us }));
}

/** Where the time of one call went, as its record tells; those under a millisecond have no parts. */
function parts(event) {
  const { parts_us: told, node_parts_us: nodes = [], duration_ms: lasted } = event.details ?? {};
  if (!told) return [];
  // The whole is known to the millisecond, so less than one is no part of its own.
  const here = measured(told, lasted * 1000 + (told.door ?? 0), 0, 1000);
  const node = event.target.server_id?.includes('/') ? event.target.server_id.split('/')[0] : null;
  const server = here.find((part) => part.name === 'server');
  const whole = Math.max(1, ...here.map((part) => part.from + part.us));
  const row = ({ name, words, us, from }, within) => {
    const bar = h('span', { class: `bar part ${name}` });
    bar.style.marginLeft = `${Math.min(99.3, (from / whole) * 100)}%`;
    bar.style.width = `${Math.max(0.5, (us / whole) * 100)}%`;
    return h('li', {}, h('span', { class: 'one-line' }, words, ' · ', fine(us)), h('span', { class: 'track' }, bar), within);
  };
  const way = server ? Math.max(0, server.us - nodes.reduce((sum, one) => sum + one.whole, 0)) : 0;
  const there = server ? abroad(nodes, server.from, way / (nodes.length + 1)).map((one) => row(one, h('ol', { class: 'waterfall', 'aria-label': `The parts at node ${one.node}` }, one.parts.map((part) => row(part))))) : [];
  return [h('h3', {}, 'Where its time went'), h('ol', { class: 'waterfall', 'aria-label': 'The parts of the call' }, here.map((part) => part !== server || (!node && !there.length) ? row(part)
    : row({ ...part, words: node ? `the way to node ${node} and its server` : 'the nodes it went to' }, there.length > 0 && h('ol', { class: 'waterfall', 'aria-label': 'At other nodes' }, there)))),
  node && h('p', { class: 'dim' }, there.length ? `What is within it node ${node} measured itself; the other ${fine(way)} are the way there and back. Its own record is in its log, under the same trace: `
    : `Node ${node} told no parts: the call took no time there, or its version tells none. Its own record is in its log, under the same trace: `, h('code', {}, `mgp audit find --trace ${event.trace_id}`))];
}

/** What other nodes say of their parts, in the order they were asked, with as much of the way on each side: clocks of two machines are not compared. */
function abroad(nodes, from, way) {
  let before = from;
  return nodes.map((one) => {
    const begin = before + way;
    before = begin + one.whole;
    return { node: one.node, name: 'node', words: `at node ${one.node}`, us: one.whole, from: begin, parts: measured(one, one.whole, begin, Math.max(100, one.whole / 100)) };
  });
}

const fine = (us) => us < 1000 ? `${Math.round(us)} µs` : us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(1)} s`;
