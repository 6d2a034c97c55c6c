// One tool: what it says of itself, and a form to try it with.

import { h, fill, doing, say, pill, span, visible } from '../dom.js';
import { form } from '../forms.js';
import { result, text } from '../content.js';
import { hasApp, openApp } from '../apps.js';

// Characters of what comes while a call runs that are shown; of what comes behind them is only said how much.
const LONGEST = 200000;

const kept = (server, tool) => `mgp-args ${server} ${tool}`;

export function tryTool({ kernel, tool, server, signal }) {
  let last = {};
  try { last = JSON.parse(sessionStorage.getItem(kept(server, tool.own)) ?? '{}'); } catch { /* nothing was kept */ }
  let asked = form(tool.inputSchema, last);
  const raw = h('textarea', { class: 'mono', rows: 8, 'aria-label': 'Arguments as JSON', hidden: true });
  const fields = h('div', {}, asked.el);
  const out = h('div', { class: 'out', role: 'region', 'aria-label': 'Answer', 'aria-live': 'polite' });
  const stop = h('button', { type: 'button', class: 'bad', hidden: true }, 'Stop');
  const run = h('button', { type: 'submit', class: 'main' }, 'Call it');
  const toggle = h('button', { type: 'button', class: 'plain', onclick: () => {
    try {
      if (raw.hidden) raw.value = JSON.stringify(lenient(asked), null, 2);
      else { asked = form(tool.inputSchema, JSON.parse(raw.value || '{}')); fill(fields, asked.el); }
      raw.hidden = !raw.hidden;
      fields.hidden = !raw.hidden;
      toggle.textContent = raw.hidden ? 'Write JSON instead' : 'Back to the form';
    } catch (error) { say(error.message, 'bad'); }
  } }, 'Write JSON instead');

  const call = (event) => {
    event.preventDefault();
    let args;
    try { args = raw.hidden ? asked.read() : JSON.parse(raw.value || '{}'); } catch (error) { return say(error.message, 'bad'); }
    keep(server, tool, args);
    return doing(() => make(args), run);
  };
  let app = null;
  const make = async (args) => {
    app?.close();
    app = null;
    const giveUp = new AbortController();
    signal.addEventListener('abort', () => giveUp.abort(), { once: true });
    stop.hidden = false;
    stop.onclick = () => giveUp.abort();
    const progress = h('progress', { 'aria-label': 'Progress' });
    const word = h('span', { class: 'dim' }, 'called');
    const chunks = h('pre', { class: 'text', hidden: true, tabindex: '0' });
    const rest = h('p', { class: 'dim', hidden: true });
    let length = 0;
    const came = (text) => {
      chunks.hidden = false;
      if (length < LONGEST) chunks.append(text.slice(0, LONGEST - length));
      length += text.length;
      rest.hidden = length <= LONGEST;
      if (!rest.hidden) rest.textContent = `… and ${(length - LONGEST).toLocaleString()} characters more`;
    };
    fill(out, h('div', { class: 'row' }, progress, word), chunks, rest);
    const heard = ({ method, params }) => {
      if (method === 'notifications/progress') {
        if (params.total) { progress.max = params.total; progress.value = params.progress; }
        word.textContent = visible([params.message, params.total ? `${params.progress} of ${params.total}` : params.progress].filter((one) => one !== undefined && one !== '').join(' · '));
      }
      if (method === 'notifications/message') came(`[${params.level}] ${typeof params.data === 'string' ? params.data : JSON.stringify(params.data)}\n`);
      if (method === 'notifications/mgp.stream.chunk') came(String(params.content?.text ?? JSON.stringify(params.content ?? params)));
    };
    const began = performance.now();
    try {
      const answer = await kernel.ask('tools/call', { name: tool.name, arguments: args }, { heard, signal: giveUp.signal, token: true, from: `${server}:${tool.own}` });
      const took = span(performance.now() - began);
      const before = chunks.hidden ? [] : [h('details', {}, h('summary', {}, 'What came before'), chunks, rest)];
      const place = h('div', {}, hasApp(tool) && h('button', { type: 'button', onclick: ({ target }) => doing(async () => {
        app = await openApp({ pageKey: kernel.pageKey, server, tool, args, result: answer, signal });
        fill(place, app.el);
      }, target) }, 'Open its app'));
      fill(out, h('p', { class: 'dim' }, `Answered in ${took}`), place, before, result(answer));
    } catch (error) {
      fill(out, h('p', { class: 'note bad' }, giveUp.signal.aborted ? 'Stopped: the call was taken back.' : error.message),
        error.data && text(JSON.stringify(error.data, null, 2)));
    } finally {
      stop.hidden = true;
    }
  };

  const hints = tool.annotations ?? {};
  return [
    h('h2', {}, visible(tool.own)),
    h('div', { class: 'row' }, hints.readOnlyHint === true && pill('good', 'reads only'), hints.destructiveHint === true && pill('bad', 'may destroy'),
      hints.openWorldHint === true && pill('', 'reaches outside'), hints.idempotentHint === true && pill('', 'same again')),
    h('p', { class: 'said' }, visible(tool.description ?? tool.title ?? 'It says nothing of itself.')),
    h('form', { onsubmit: call, novalidate: true }, fields, raw, h('div', { class: 'row' }, run, stop, toggle)),
    out,
    h('details', {}, h('summary', {}, 'Schema'), text(JSON.stringify(tool.inputSchema, null, 2)), tool.outputSchema && [h('p', { class: 'dim' }, 'of its answer'), text(JSON.stringify(tool.outputSchema, null, 2))]),
    h('p', { class: 'dim' }, 'Agents know it as ', h('code', {}, tool.name), '. ', h('a', { href: `#/access/${encodeURIComponent(server)}/${encodeURIComponent(tool.own)}` }, 'Who may call it')),
  ];
}

/** What stands in the form so far, finished or not. */
function lenient(asked) {
  try { return asked.read(); } catch { return {}; }
}

/** Arguments are kept in this tab alone, and none that look like a secret. */
function keep(server, tool, args) {
  const secret = /password|secret|token|api_?key/i;
  const plain = Object.fromEntries(Object.entries(args ?? {}).filter(([name]) => !secret.test(name)));
  try { sessionStorage.setItem(kept(server, tool.own), JSON.stringify(plain)); } catch { /* there is no room: nothing is kept */ }
}
