// What servers answer, shown: text as text, pictures and sounds as such, and nothing that could be run.

import { h, bytes, visible } from './dom.js';

// A picture of these types is only ever decoded; SVG is a document, and is shown as its text.
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const SOUNDS = ['audio/wav', 'audio/x-wav', 'audio/mpeg', 'audio/ogg', 'audio/webm', 'audio/mp4'];
// Longest text that is drawn, in characters; the rest is said to be there.
const LONGEST = 200000;

/** The result of a tool. */
export function result(of) {
  const parts = (of.content ?? []).map(block);
  const structured = of.structuredContent !== undefined && h('details', { open: parts.length === 0 },
    h('summary', {}, 'Structured content'), text(JSON.stringify(of.structuredContent, null, 2)));
  return h('div', { class: of.isError ? 'result bad' : 'result' },
    of.isError && h('p', { class: 'note bad' }, 'The tool says that it failed.'), parts, structured,
    parts.length === 0 && !structured && h('p', { class: 'dim' }, 'An empty answer.'));
}

function block(of) {
  switch (of?.type) {
    case 'text': return text(of.text);
    case 'image': return media(of, PICTURES, (url) => h('img', { src: url, alt: 'A picture from the server' }));
    case 'audio': return media(of, SOUNDS, (url) => h('audio', { src: url, controls: true }));
    case 'resource': return h('div', {}, h('p', { class: 'dim' }, 'Resource ', h('code', {}, visible(String(of.resource?.uri)))),
      of.resource?.text !== undefined ? text(of.resource.text) : block({ type: 'image', data: of.resource?.blob, mimeType: of.resource?.mimeType }));
    case 'resource_link': return h('p', {}, 'Resource ', h('code', {}, visible(String(of.uri))), ' ', visible(String(of.title ?? of.name ?? '')));
    default: return text(JSON.stringify(of, null, 2));
  }
}

/** Text as it is; JSON is laid out. */
export function text(of) {
  let said = String(of ?? '');
  if (/^\s*[[{]/.test(said) && said.length < LONGEST) {
    try { said = JSON.stringify(JSON.parse(said), null, 2); } catch { /* not JSON: as it is */ }
  }
  const cut = said.length > LONGEST;
  return h('pre', { class: 'text', tabindex: '0' }, said.slice(0, LONGEST), cut && `\n… and ${said.length - LONGEST} characters more`);
}

function media(of, kinds, make) {
  const kind = String(of.mimeType ?? '').toLowerCase();
  if (!kinds.includes(kind)) return h('p', { class: 'note' }, `Something of type ${kind || '(none)'} is not shown.`);
  try {
    const raw = atob(String(of.data ?? ''));
    const data = Uint8Array.from(raw, (char) => char.charCodeAt(0));
    const url = URL.createObjectURL(new Blob([data], { type: kind }));
    return h('figure', {}, make(url), h('figcaption', { class: 'dim' }, `${kind}, ${bytes(data.length)}`));
  } catch {
    return h('p', { class: 'note bad' }, `Something of type ${kind} that cannot be read.`);
  }
}
