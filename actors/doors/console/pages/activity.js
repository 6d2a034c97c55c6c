// Activity: the audit log by pages, and what belongs to one call.

import { h, fill, doing, pill, span, when, virtual } from '../dom.js';
import { text } from '../content.js';

// Records on one page of the log, and in the browser at most: who wants older ones says which.
const PAGE = 200;
const MOST = 20000;

export default function activity({ main, kernel, store, on, rest, signal }) {
  const field = (name, placeholder, value = '') => h('input', { type: name === 'trace' ? 'text' : 'search', name, placeholder, value, 'aria-label': placeholder, autocomplete: 'off' });
  const given = rest[0] ? { [rest[0]]: rest[1] } : {};
  const fields = [field('agent', 'Agent', given.agent), field('server', 'Server', given.server), field('tool', 'Tool', given.tool), field('trace', 'Trace', given.trace)];
  const since = h('input', { type: 'datetime-local', 'aria-label': 'Since' });
  const fresh = h('button', { class: 'small', hidden: true, onclick: () => begin() }, '');
  const count = h('p', { class: 'dim', role: 'status' });
  const detail = h('section', { class: 'detail' }, h('p', { class: 'dim' }, 'Choose a record.'));
  let rows = [];
  let cursor;
  let reading = false;
  let arrived = 0;
  let turn = 0;
  const list = virtual({ label: 'Records, newest first', height: 40, count: () => rows.length, row, more: () => { if (cursor && !reading && rows.length < MOST) next(); } });
  list.classList.add('tall');
  const search = h('form', { class: 'row filters', onsubmit: (event) => { event.preventDefault(); begin(); } }, fields, since, h('button', { type: 'submit', class: 'main' }, 'Find'), fresh);
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
    if (since.value) said.since_ms = new Date(since.value).getTime();
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

  async function next() {
    const mine = turn;
    reading = true;
    await doing(async () => {
      const found = await kernel.ask('mgp/audit/find', { ...filters(), limit: PAGE, ...(cursor && { cursor }) });
      if (mine !== turn || signal.aborted) return;
      rows.push(...found.events);
      cursor = found.next_cursor;
      const more = rows.length >= MOST ? `; ${MOST.toLocaleString()} are as many as are shown at once, narrow the search for older ones` : cursor ? ', more as you scroll' : '';
      count.textContent = `${rows.length.toLocaleString()} record${rows.length === 1 ? '' : 's'}${more}. The log has ${found.newest.toLocaleString()}.${found.note ? ` ${found.note}` : ''}`;
    });
    if (mine !== turn) return;
    reading = false;
    list.again();
  }

  async function choose(event) {
    const found = await doing(() => kernel.ask('mgp/audit/find', { trace: event.trace_id, limit: 200 }));
    const its = (found?.events ?? [event]).reverse();
    fill(detail, h('h2', {}, event.event_type), h('p', { class: 'row' }, pill(kind(event.result), event.result.toLowerCase()), h('span', { class: 'dim' }, `number ${event._mgp?.seq ?? ''}`)),
      waterfall(its), h('details', { open: true }, h('summary', {}, 'The record'), text(JSON.stringify(event, null, 2))),
      h('div', { class: 'row' }, event.target.server_id && h('a', { class: 'button', href: `#/servers/${encodeURIComponent(event.target.server_id)}/log` }, 'Log of the server'),
        event.target.tool_name && event.actor.type === 'agent' && h('a', { class: 'button', href: `#/access/${encodeURIComponent(event.target.server_id)}/${encodeURIComponent(event.target.tool_name)}` }, 'Why it may or may not')));
    if (innerWidth < 900) detail.scrollIntoView({ block: 'start' });
  }

  async function head(button) {
    const last = await doing(() => kernel.ask('mgp/audit/last'), button);
    if (!last) return;
    const problems = (store.status?.troubles ?? []).filter((trouble) => /audit/.test(trouble));
    fill(detail, h('h2', {}, 'The log'), h('dl', { class: 'facts' }, h('dt', {}, 'Last record'), h('dd', {}, String(last.sequence)), h('dt', {}, 'Its hash'), h('dd', { class: 'mono wrap' }, last.hash)),
      problems.length ? problems.map((problem) => h('p', { class: 'note bad' }, problem)) : h('p', { class: 'note good' }, 'The kernel found nothing wrong with it.'),
      h('p', {}, 'Whether every record is as it was written is looked at on the disk itself, without trusting the kernel that runs:'), h('pre', { class: 'command' }, 'mgp audit verify'));
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
