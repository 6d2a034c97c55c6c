// Elements out of data. Text of others goes into text nodes and attributes that hold text, never into markup:
// nothing here or anywhere in the console parses HTML, and the policy of the page makes trying to throw.

/** Attributes that are read to people. */
const READ = new Set(['title', 'aria-label', 'placeholder', 'alt']);

/**
 * Text with what nobody sees made visible: it may say something to a model that no person reads, or make two names look
 * the same. All text passes here. A joiner behind a letter or a picture that may need it stays, as on the command line.
 */
export const visible = (text) => String(text ?? '').replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, (char, at, whole) => {
  if (char === '\n' || char === '\t') return char;
  const needs = whole[at - 1] > '\x7f' && !/[\u200c\u200d]/.test(whole[at - 1]);
  if (needs && /[\u200c\u200d\ufe0e\ufe0f]/.test(char)) return char;
  return `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`;
});

/** An element: `h('button', { class: 'a', onclick: f }, 'text', other)`. */
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) set(el, name, value);
  put(el, children);
  return el;
}

function set(el, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith('on')) { el.addEventListener(name.slice(2), value); el.hears = true; }
  else if (name === 'class') el.className = value;
  else if (name === 'value' || name === 'checked' || name === 'selected') el[name] = value;
  else if (name === 'href') el.setAttribute('href', safe(value));
  else el.setAttribute(name, value === true ? '' : READ.has(name) ? visible(value) : value);
}

/** Only places of this page, and the web. */
function safe(href) {
  const text = String(href);
  return /^(#|https?:\/\/|blob:)/i.test(text) ? text : '#';
}

function put(el, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    el.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

/** Replaces what is in an element; what had the focus keeps it, where it is still there by `data-key`. */
export function fill(el, ...children) {
  const active = el.contains(document.activeElement) ? document.activeElement?.closest('[data-key]')?.dataset.key : null;
  el.replaceChildren();
  put(el, children);
  if (active) el.querySelector(`[data-key="${CSS.escape(active)}"]`)?.focus({ preventScroll: true });
  return el;
}

/**
 * A part of a page that is drawn anew at most once per frame. What is the same stays: who reads it aloud, selects it or
 * is just pressing it is not interrupted.
 */
export function live(el, draw) {
  let due = false;
  const now = () => {
    due = false;
    if (el.isConnected || !el.dataset.drawn) patch(el, draw());
    el.dataset.drawn = '1';
  };
  now();
  return Object.assign(el, { again: () => { if (!due) { due = true; requestAnimationFrame(now); } } });
}

/** Puts these in the place of what an element holds, and leaves alone what is the same. */
function patch(el, made) {
  const wanted = document.createElement(el.tagName);
  put(wanted, [made]);
  const active = el.contains(document.activeElement) ? document.activeElement?.closest('[data-key]')?.dataset.key : null;
  const count = wanted.childNodes.length;
  morph(el, wanted);
  while (el.childNodes.length > count) el.lastChild.remove();
  if (active && !el.contains(document.activeElement)) el.querySelector(`[data-key="${CSS.escape(active)}"]`)?.focus({ preventScroll: true });
}

function morph(el, wanted) {
  [...wanted.childNodes].forEach((node, at) => {
    const old = el.childNodes[at];
    if (!old) el.append(node);
    else if (stays(old, node)) node.remove();
    else if (old.nodeType === Node.ELEMENT_NODE && old.tagName === node.tagName && !old.hears && !node.hears && old.childElementCount) {
      for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      const count = node.childNodes.length;
      morph(old, node);
      while (old.childNodes.length > count) old.lastChild.remove();
    } else old.replaceWith(node);
  });
}

/** The same to look at, and to press: what hears stays only under a key, which says what it is about. */
function stays(old, node) {
  if (old.hears && old.dataset.key && old.dataset.key === node.dataset?.key && old.hasAttribute('aria-busy')) return true;
  return old.isEqualNode(node) && !unkeyed(old);
}

const unkeyed = (node) => (node.hears && !node.dataset.key) || [...node.children ?? []].some(unkeyed);

/** A word with a colour of its own, which is said in words, too. */
export const pill = (kind, text, title) => h('span', { class: `pill ${kind}`, title }, text);

// Height of the column titles, and what stays free below a tall list, in pixels; rows that are shown at least.
const HEAD = 30;
const FOOT = 24;
const LEAST = 5;

/**
 * A long list of which only the rows in sight exist. Rows are of one height, in pixels. `head` is a row of column titles.
 * A list of class `tall` ends above the foot of the window, after a whole row.
 * `calm` says that rows hold nothing that hears: one that is the same stays.
 * `row(index)` makes one; `count()` says how many there are; arrow keys move between rows.
 */
export function virtual({ label, height, count, row, head, more, calm }) {
  const sizer = h('div', { class: 'v-sizer', role: 'presentation' });
  const el = h('div', { class: 'v-list', tabindex: '0', role: 'list', 'aria-label': label }, head && h('div', { class: `${head[0]} v-head`, 'aria-hidden': 'true' }, head.slice(1).map((word) => h('span', {}, word))), sizer);
  let first = -1;
  let last = -1;
  const draw = (force) => {
    const total = count();
    sizer.style.height = `${total * height}px`;
    // As high as its rows, as far as the style lets it.
    const top = head ? HEAD : 0;
    const room = el.classList.contains('tall') ? Math.floor((innerHeight - el.getBoundingClientRect().top - scrollY - top - 2 - FOOT) / height) : total;
    el.style.height = `${Math.max(Math.min(total, Math.max(room, LEAST)), 1) * height + top + 2}px`;
    const from = Math.max(0, Math.floor(el.scrollTop / height) - 6);
    const to = Math.min(total, Math.ceil((el.scrollTop + (el.clientHeight || 600)) / height) + 6);
    if (!force && from === first && to === last) return;
    const focused = sizer.contains(document.activeElement) ? document.activeElement.closest('[data-index]')?.dataset.index : null;
    first = from;
    last = to;
    const rows = [];
    for (let at = from; at < to; at++) {
      const made = row(at);
      made.style.transform = `translateY(${at * height}px)`;
      made.dataset.index = at;
      made.classList.add('v-row');
      made.setAttribute('role', 'listitem');
      made.setAttribute('aria-setsize', total);
      made.setAttribute('aria-posinset', at + 1);
      rows.push(made);
    }
    if (calm) patch(sizer, rows);
    else sizer.replaceChildren(...rows);
    if (focused !== null && focused !== undefined) focusRow(Number(focused));
    if (more && to >= total - 10) more();
  };
  const focusRow = (at) => {
    const target = sizer.querySelector(`[data-index="${at}"]`);
    (target?.querySelector('a,button,input') ?? target)?.focus({ preventScroll: true });
  };
  el.addEventListener('scroll', () => draw(false), { passive: true });
  el.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!step || event.target.matches('select,textarea')) return;
    event.preventDefault();
    const now = Number(document.activeElement?.closest('[data-index]')?.dataset.index ?? -1);
    const next = Math.min(Math.max(now + step, 0), count() - 1);
    if (next * height < el.scrollTop) el.scrollTop = next * height;
    const high = el.clientHeight - (head ? HEAD : 0);
    if ((next + 1) * height > el.scrollTop + high) el.scrollTop = (next + 1) * height - high;
    draw(true);
    focusRow(next);
  });
  new ResizeObserver(() => draw(true)).observe(el);
  const resized = () => { if (el.isConnected) draw(true); else if (first >= 0) removeEventListener('resize', resized); };
  addEventListener('resize', resized);
  return Object.assign(el, { again: () => draw(true), top: () => { el.scrollTop = 0; draw(true); } });
}

/** A dialog that resolves to what its buttons say; Escape says undefined. */
export function dialog(title, content, buttons) {
  return new Promise((done) => {
    const box = h('dialog', { 'aria-labelledby': 'dialog-title' });
    const close = (value) => { box.close(); box.remove(); done(value); };
    box.append(
      h('h2', { id: 'dialog-title' }, title),
      h('div', { class: 'dialog-body' }, content),
      h('div', { class: 'row end' }, buttons.map(({ text, kind, says }) =>
        h('button', { class: kind ?? '', onclick: async () => { const value = await says(); if (value !== null) close(value); } }, text))),
    );
    box.addEventListener('cancel', (event) => { event.preventDefault(); close(undefined); });
    document.body.append(box);
    box.showModal();
  });
}

/** A line at the foot of the page that goes away by itself; read aloud. */
export function say(text, kind = '') {
  let place = document.getElementById('said');
  if (!place) document.body.append(place = h('div', { id: 'said', role: 'status', 'aria-live': 'polite' }));
  const line = h('div', { class: `toast ${kind}` }, text);
  place.append(line);
  setTimeout(() => line.remove(), kind === 'bad' ? 9000 : 4500);
}

/** Does something, and says what went wrong where it did. */
export async function doing(what, button) {
  // Once at a time: a key that is pressed twice asks once.
  if (button?.hasAttribute('aria-busy')) return undefined;
  button?.setAttribute('aria-busy', 'true');
  try {
    return await what();
  } catch (error) {
    say(error.message, 'bad');
    return undefined;
  } finally {
    button?.removeAttribute('aria-busy');
  }
}

// Numbers and times in words.

export function span(ms) {
  if (ms === null || ms === undefined) return '';
  const secs = ms / 1000;
  if (secs < 1) return `${Math.round(ms)} ms`;
  if (secs < 100) return `${Math.round(secs)} s`;
  if (secs < 6000) return `${Math.round(secs / 60)} min`;
  if (secs < 172800) return `${Math.round(secs / 3600)} h`;
  return `${Math.round(secs / 86400)} d`;
}

export function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${count < 10 && at ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

export const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });

export const when = (at) => {
  const date = new Date(at);
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock(date) : `${date.toLocaleDateString()} ${clock(date)}`;
};
