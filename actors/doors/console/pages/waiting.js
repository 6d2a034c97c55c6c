// Waiting: what waits for a person, with one key to approve and one to deny.

import { h, fill, doing, say, pill, when, visible } from '../dom.js';
import { change } from './pins.js';

const WORDS = { permissions: 'Permissions', confirmation: 'A dangerous call', pins: 'Changed tools', callback: 'A question', registration: 'A new server', scope: 'A scope', result: 'A result' };
const LENGTHS = [['for good', null], ['for an hour', 3600e3], ['for a day', 86400e3], ['for 30 days', 30 * 86400e3]];

// What moved on the page less than this ago, in milliseconds, is not what somebody means who answers.
const UNSEEN = 400;

export default function waiting({ main, kernel, store, on, signal }) {
  const list = h('div', { class: 'cards' });
  main.append(h('h1', {}, 'Waiting for you'), list);

  let shown;
  let moved = -Infinity;
  const unseen = () => performance.now() - moved < UNSEEN;

  const decide = (entry, yes, card, button, later) => doing(async () => {
    if (unseen()) throw new Error('The list has just changed: look again.');
    const only = [...card.querySelectorAll('.parts input:checked')].map((box) => box.value);
    const all = card.querySelectorAll('.parts input').length;
    const part = all && only.length < all ? { only } : {};
    if (all && !only.length) throw new Error('Nothing is chosen.');
    const during = card.querySelector('select.during')?.value;
    const params = yes ? { id: entry.id, ...part, ...(during && { for_ms: Number(during) }) } : { id: entry.id, ...part, ...(later && { later: true }) };
    await kernel.ask(yes ? 'mgp/approvals/approve' : 'mgp/approvals/deny', params);
    say(yes ? 'Approved' : later ? 'Left open' : 'Denied', yes ? 'good' : '');
    await store.readPending();
  }, button);

  const draw = () => {
    const { pending, logins } = store.pending;
    const cards = pending.map((entry) => card(entry, decide, kernel, store));
    const wanted = Object.entries(logins).map(([server, login]) => h('article', { class: 'card', tabindex: '0', 'data-key': `login ${server}` },
      h('header', { class: 'row' }, pill('warn', 'Login'), h('b', {}, server)), h('p', {}, login.why), h('pre', { class: 'command' }, login.command),
      login.url && h('p', {}, h('a', { href: login.url, target: '_blank', rel: 'noopener noreferrer' }, 'Sign in'))));
    const nodes = store.joining.map((node) => joining(node, kernel, store));
    const keys = [...cards, ...nodes, ...wanted].map((card) => card.dataset.key).join();
    if (shown !== undefined && shown !== keys) moved = performance.now();
    shown = keys;
    fill(list, cards, nodes, wanted, cards.length + wanted.length + nodes.length === 0 && h('p', { class: 'empty' }, 'Nothing waits for you.'));
    if (cards.length + nodes.length && !list.contains(document.activeElement) && !document.querySelector('dialog[open]')) list.firstElementChild.focus({ preventScroll: true });
  };
  draw();
  on('pending', draw);

  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target.matches('input,textarea,select') || document.querySelector('dialog[open]')) return;
    const card = document.activeElement?.closest('.card');
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    const every = [...list.querySelectorAll('.card')];
    if (step && every.length) {
      event.preventDefault();
      every[Math.min(Math.max(every.indexOf(card) + step, 0), every.length - 1)].focus();
    }
    const button = { y: '.yes', n: '.no' }[event.key];
    if (!button) return;
    // Nobody answers what is not under the focus.
    if (card && !unseen()) card.querySelector(button)?.click();
    else list.querySelector('.card')?.focus();
  }, { signal });
}

function card(entry, decide, kernel, store) {
  const el = h('article', { class: 'card', tabindex: '0', 'data-key': entry.id, 'aria-label': entry.text });
  const answers = entry.options !== undefined && entry.options !== null;
  const buttons = answers ? answer(entry, kernel, store) : [
    h('button', { class: 'yes main', onclick: (event) => decide(entry, true, el, event.target) }, 'Approve ', h('kbd', {}, 'y')),
    h('button', { class: 'no bad', onclick: (event) => decide(entry, false, el, event.target) }, 'Deny ', h('kbd', {}, 'n')),
    entry.subject === 'permissions' && h('button', { onclick: (event) => decide(entry, false, el, event.target, true) }, 'Not now'),
    entry.subject === 'confirmation' && h('span', { class: 'dim' }, 'An approval is for this call alone.'),
    entry.subject === 'permissions' && h('select', { class: 'during', 'aria-label': 'For how long the approval holds' }, LENGTHS.map(([words, ms]) => h('option', { value: ms ?? '' }, words)))];
  fill(el,
    h('header', { class: 'row' }, pill('warn', WORDS[entry.subject] ?? entry.subject), h('span', { class: 'dim' }, [entry.server, entry.agent].filter(Boolean).join(' · ')),
      h('span', { class: 'dim end grow' }, `since ${when(entry.since)}`, entry.until && `, until ${when(entry.until)}`)),
    h('p', { class: 'asked' }, visible(entry.text)),
    entry.details.length > 0 && h('pre', { class: 'text diff', tabindex: '0' }, entry.details.map(line)),
    entry.subject === 'pins' && entry.parts.map((tool) => change(kernel, entry.server, tool)),
    entry.parts.length > 1 && h('fieldset', { class: 'parts' }, h('legend', {}, 'About'), entry.parts.map((part) => h('label', { class: 'check' }, h('input', { type: 'checkbox', value: part, checked: true }), visible(part)))),
    h('div', { class: 'row' }, buttons.flat()));
  return el;
}

/** What was and what is, by the sign before it. */
function line(text) {
  const kind = /^\s*\+|^ {2}\S+ is: /.test(text) ? 'added' : /^\s*-|^ {2}\S+ was: /.test(text) ? 'removed' : '';
  return h('span', { class: kind }, visible(text), '\n');
}

function answer(entry, kernel, store) {
  const give = (value, button) => doing(async () => {
    await kernel.ask('mgp/approvals/answer', { id: entry.id, value });
    say('Answered', 'good');
    await store.readPending();
  }, button);
  const refuse = h('button', { class: 'no bad', onclick: (event) => doing(async () => {
    await kernel.ask('mgp/approvals/deny', { id: entry.id });
    await store.readPending();
  }, event.target) }, 'Decline ', h('kbd', {}, 'n'));
  if (entry.options.length) return [entry.options.map((option, at) => h('button', { class: at === 0 ? 'yes' : '', onclick: (event) => give(option, event.target) }, visible(option))), refuse];
  const field = h('input', { type: 'text', 'aria-label': 'Your answer' });
  return [field, h('button', { class: 'main yes', onclick: (event) => give(field.value, event.target) }, 'Accept'), refuse];
}

/** A node that wants to join. */
function joining(node, kernel, store) {
  const decide = (method, button) => doing(async () => {
    const words = method === 'mgp/kernel/nodes/approve' ? { words: node.words } : {};
    await kernel.ask(method, { node: node.id, ...words });
    say('Decided', 'good');
    await store.readNodes();
  }, button);
  return h('article', { class: 'card', tabindex: '0', 'data-key': node.id, 'aria-label': `${node.name} wants to join` },
    h('header', { class: 'row' }, pill('warn', 'A node'), h('b', {}, visible(node.name)), h('span', { class: 'dim' }, `as ${node.role}, from ${node.from}`)),
    node.called_before && h('p', { class: 'note bad' }, 'It asked as ', visible(node.called_before), ' before; its words are new ones.'),
    node.looks_like && h('p', { class: 'note bad' }, `Its name is hard to tell from that of ${node.looks_like}.`),
    node.words_note && h('p', { class: 'note bad' }, visible(node.words_note)),
    h('p', { class: 'asked' }, 'It is the one you mean if it shows the same three words: ', h('b', { class: 'words' }, node.words)),
    h('div', { class: 'row' }, h('button', { class: 'yes main', onclick: (event) => decide('mgp/kernel/nodes/approve', event.target) }, 'Let it in ', h('kbd', {}, 'y')),
      h('button', { class: 'no bad', onclick: (event) => decide('mgp/kernel/nodes/refuse', event.target) }, 'Turn it away ', h('kbd', {}, 'n'))));
}
