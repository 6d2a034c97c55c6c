// Signs in, keeps the kernel's events coming, and shows one page at a time.

import { Kernel, SignedOut } from './mcp.js';
import { Store } from './store.js';
import { h, fill, say, dialog } from './dom.js';
import { question } from './forms.js';
import now from './pages/now.js';
import servers from './pages/servers.js';
import waiting from './pages/waiting.js';
import access from './pages/access.js';
import agents from './pages/agents.js';
import activity from './pages/activity.js';
import cluster from './pages/cluster.js';

const KEY = 'mgp-page-key';
// What makes a link good, as it stands behind the `#`.
const CODE = /^#([A-Za-z0-9_-]{43})$/;
const PAGES = [
  { name: 'now', title: 'Now', key: 'n', show: now },
  { name: 'servers', title: 'Servers', key: 's', show: servers },
  { name: 'waiting', title: 'Waiting', key: 'w', show: waiting },
  { name: 'access', title: 'Access', key: 'a', show: access },
  { name: 'agents', title: 'Agents', key: 'e', show: agents },
  { name: 'activity', title: 'Activity', key: 'v', show: activity },
  { name: 'cluster', title: 'Cluster', key: 'c', show: cluster },
];

theme(localStorage.getItem('mgp-theme'));
// Another link in the same tab changes only what is behind the `#`: the page begins anew with it.
addEventListener('hashchange', () => { if (CODE.test(location.hash)) location.reload(); });
start();

async function start() {
  // The code of a link is behind the `#`, is good once, and leaves the address before anything else happens.
  const code = location.hash.match(CODE)?.[1];
  if (code) history.replaceState(null, '', '/');
  let key = localStorage.getItem(KEY);
  if (code) {
    const response = await fetch('/console/session', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ code }),
    });
    const answer = await response.json().catch(() => ({}));
    // Any page can send a browser here with a code that is none: that signs nobody out.
    if (!response.ok && !key) return signedOut(answer.error?.message);
    if (!response.ok) say(answer.error?.message ?? 'This link is not good.', 'bad');
    else localStorage.setItem(KEY, key = answer.pageKey);
  }
  if (!key) return signedOut();
  const kernel = new Kernel(key);
  kernel.onQuestion = question;
  try {
    await kernel.open();
  } catch (error) {
    if (error instanceof SignedOut) return signedOut();
    return signedOut(error.message);
  }
  run(kernel, new Store(kernel));
}

function signedOut(why) {
  localStorage.removeItem(KEY);
  document.title = 'mgp';
  fill(document.body, h('main', { class: 'gate' },
    h('img', { src: '/console/icon.svg', alt: '', width: 48, height: 48 }),
    h('h1', {}, 'MGP console'),
    why && h('p', { class: 'note bad', role: 'alert' }, why),
    h('p', {}, 'This browser is not signed in. Type this on the machine where the kernel runs:'),
    h('pre', { class: 'command' }, 'mgp console'),
    h('p', { class: 'dim' }, 'It opens a link that is good once, for a minute.')));
}

function run(kernel, store) {
  const main = h('main', { id: 'main', tabindex: '-1' });
  const links = new Map(PAGES.map((page) => [page.name, h('a', { href: `#/${page.name}`, 'data-page': page.name }, page.title)]));
  const badge = h('span', { class: 'badge', hidden: true });
  links.get('waiting').append(badge);
  const state = h('span', { class: 'link-state', role: 'status' }, 'connecting');
  const nav = h('nav', { 'aria-label': 'Pages' },
    h('a', { class: 'brand', href: '#/now', 'aria-label': 'mgp, now' }, h('img', { src: '/console/icon.svg', alt: '', width: 22, height: 22 }), 'mgp'),
    h('div', { class: 'links' }, [...links.values()]),
    h('div', { class: 'foot' }, state,
      h('button', { class: 'plain', onclick: switchTheme, title: 'Light or dark (t)' }, 'Theme'),
      h('button', { class: 'plain', onclick: help, title: 'Keys (?)' }, 'Keys'),
      h('button', { class: 'plain', onclick: () => leave(kernel) }, 'Sign out')));
  fill(document.body, h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'Skip to the page'), nav, main);

  let ended = new AbortController();
  const show = () => {
    if (CODE.test(location.hash)) return;
    const [name, ...rest] = location.hash.replace(/^#\/?/, '').split('/').map(decoded);
    const page = PAGES.find((page) => page.name === name) ?? PAGES[0];
    ended.abort();
    ended = new AbortController();
    for (const [of, link] of links) of === page.name ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current');
    const active = main.contains(document.activeElement) ? document.activeElement.closest('[data-key]')?.dataset.key : null;
    links.get(page.name).scrollIntoView({ block: 'nearest', inline: 'center' });
    document.title = `${rest[0] ? `${rest[0]} · ` : ''}${page.title} · mgp`;
    main.replaceChildren();
    main.scrollTop = 0;
    page.show({ main, kernel, store, rest, signal: ended.signal, on: (topics, hear) => ended.signal.addEventListener('abort', store.on(topics, hear)) });
    // Who hears the page is told that it is another one; a tab that was pressed stays where it was.
    const same = active && main.querySelector(`[data-key="${CSS.escape(active)}"]`);
    if (same) same.focus({ preventScroll: true });
    else if (!main.contains(document.activeElement)) main.focus({ preventScroll: true });
  };
  addEventListener('hashchange', show);

  store.on('pending', () => {
    const count = store.waiting();
    badge.hidden = count === 0;
    badge.textContent = count;
    badge.setAttribute('aria-label', `${count} waiting`);
  });

  let known = null;
  kernel.onState = async (word, session) => {
    if (word === 'out') { stop.abort(); ended.abort(); return signedOut('This browser was signed out, or its time is over.'); }
    state.textContent = word === 'open' ? 'live' : 'reconnecting';
    state.dataset.state = word;
    if (word === 'open' && session !== known) {
      const first = known === null;
      known = session;
      await store.begin().catch((error) => say(error.message, 'bad'));
      if (first) show();
      else { show(); say('connected again'); }
    }
  };
  let stop = new AbortController();
  kernel.listen(stop.signal);
  // Browsers open six connections to one place: a tab that nobody sees gives its own back.
  let hiding;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => stop.abort(), 30000);
    else if (stop.signal.aborted) { stop = new AbortController(); kernel.listen(stop.signal); store.catchUp(); }
  });
  addEventListener('pagehide', () => kernel.leave());
  addEventListener('pageshow', (event) => { if (event.persisted) location.reload(); });
  keys();
}

async function leave(kernel) {
  await fetch('/console/session', { method: 'DELETE', headers: { 'mgp-console': kernel.pageKey } }).catch(() => {});
  signedOut('You are signed out.');
}

function keys() {
  let after = 0;
  // A menu is closed by whatever is done elsewhere, and by Escape.
  const closeMenus = (besides) => document.querySelectorAll('details.menu[open]').forEach((menu) => { if (!menu.contains(besides)) menu.open = false; });
  document.addEventListener('click', (event) => closeMenus(event.target));
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') closeMenus(null); });
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input,textarea,select') || document.querySelector('dialog[open]')) return;
    if (event.key === 'g') { after = event.timeStamp; return; }
    if (event.timeStamp - after < 1200) {
      after = 0;
      const page = PAGES.find((page) => page.key === event.key);
      if (page) { event.preventDefault(); location.hash = `#/${page.name}`; document.getElementById('main').focus(); }
      return;
    }
    if (event.key === '/') { const field = document.querySelector('input[type=search]'); if (field) { event.preventDefault(); field.focus(); } }
    if (event.key === '?') help();
    if (event.key === 't') switchTheme();
  });
}

function help() {
  const rows = [...PAGES.map((page) => [`g ${page.key}`, page.title]),
    ['/', 'search this page'], ['↓ ↑', 'move in a list'], ['y n', 'on Waiting: approve or deny'], ['t', 'light or dark'], ['?', 'this list']];
  dialog('Keys', h('table', {}, rows.map(([key, what]) => h('tr', {}, h('td', {}, h('kbd', {}, key)), h('td', {}, what)))),
    [{ text: 'Close', says: () => true }]);
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  const next = dark ? 'light' : 'dark';
  localStorage.setItem('mgp-theme', next);
  theme(next);
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}
