// Two definitions line by line: what was approved, and what is. They are laid out as the server wrote them and are
// never read into objects first, where the last of two members of one name would hide the other.

import { h, visible } from './dom.js';

// Lines of one side that are compared; of longer ones the rest is shown as it is.
const MOST = 1500;
// Lines around a change that are shown.
const NEAR = 3;

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** JSON text in lines: a member on each, and a line of its own for each line of a text. */
export function laid(raw) {
  const lines = [];
  let line = '';
  let depth = 0;
  const next = () => { lines.push(line); line = '  '.repeat(depth); };
  const tokens = String(raw).match(TOKEN) ?? [];
  tokens.forEach((token, at) => {
    if (token === '{' || token === '[') {
      line += token;
      if (tokens[at + 1] === '}' || tokens[at + 1] === ']') return;
      depth += 1;
      next();
    } else if (token === '}' || token === ']') {
      if (!/[{[]$/.test(line)) { depth -= 1; if (line.trim()) next(); line = '  '.repeat(Math.max(0, depth)); }
      line += token;
    } else if (token === ',') {
      line += token;
      next();
    } else if (token === ':') line += ': ';
    else if (token[0] === '"') {
      const [first, ...more] = spelt(token).split('\n');
      line += first;
      for (const one of more) { lines.push(line); line = `${'  '.repeat(depth)}  ${one}`; }
    } else line += visible(token);
  });
  if (line.trim()) lines.push(line);
  return lines;
}

/** A text of JSON as it reads, with what cannot be seen made visible. */
function spelt(token) {
  try { return `"${visible(JSON.parse(token))}"`; } catch { return visible(token); }
}

/** The lines of both in order, each with its sign: ' ', '-' or '+'. */
export function compared(old, now) {
  let from = 0;
  while (from < old.length && from < now.length && old[from] === now[from]) from += 1;
  let end = 0;
  while (end < old.length - from && end < now.length - from && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const same = (lines) => lines.map((text) => ({ sign: ' ', text }));
  return [...same(now.slice(0, from)), ...middle(old.slice(from, old.length - end), now.slice(from, now.length - end)), ...same(now.slice(now.length - end))];
}

/** The longest common subsequence of both. */
function middle(old, now) {
  const gone = (text) => ({ sign: '-', text });
  const come = (text) => ({ sign: '+', text });
  if (old.length > MOST || now.length > MOST) return [...old.map(gone), ...now.map(come)];
  const width = now.length + 1;
  const long = new Uint16Array((old.length + 1) * width);
  for (let a = old.length - 1; a >= 0; a--) {
    for (let b = now.length - 1; b >= 0; b--) {
      long[a * width + b] = old[a] === now[b] ? long[(a + 1) * width + b + 1] + 1 : Math.max(long[(a + 1) * width + b], long[a * width + b + 1]);
    }
  }
  const out = [];
  let [a, b] = [0, 0];
  while (a < old.length || b < now.length) {
    if (a < old.length && b < now.length && old[a] === now[b]) { out.push({ sign: ' ', text: now[b] }); a += 1; b += 1; }
    else if (b >= now.length || (a < old.length && long[(a + 1) * width + b] >= long[a * width + b + 1])) { out.push(gone(old[a])); a += 1; }
    else { out.push(come(now[b])); b += 1; }
  }
  return out;
}

/** Both definitions as one text: what is gone, what has come, and what is near it. */
export function drawn(old, now) {
  const lines = compared(laid(old), laid(now));
  const near = new Set();
  lines.forEach(({ sign }, at) => { if (sign !== ' ') for (let of = at - NEAR; of <= at + NEAR; of++) near.add(of); });
  const out = [];
  for (let at = 0; at < lines.length; at++) {
    if (near.has(at)) { out.push(row(lines, at)); continue; }
    const from = at;
    while (at + 1 < lines.length && !near.has(at + 1)) at += 1;
    out.push(h('span', { class: 'dim' }, `  … ${at - from + 1} ${at === from ? 'line' : 'lines'} as before\n`));
  }
  return h('pre', { class: 'text diff', tabindex: '0', role: 'group', 'aria-label': 'What was approved and what is now, line by line' }, out);
}

function row(lines, at) {
  const { sign, text } = lines[at];
  if (sign === ' ') return h('span', {}, `  ${text}\n`);
  const other = sign === '-' ? pair(lines, at, '-', '+', 1) : pair(lines, at, '+', '-', -1);
  return h(sign === '-' ? 'del' : 'ins', { class: sign === '-' ? 'removed' : 'added' }, `${sign} `, other === undefined ? text : marked(text, other), '\n');
}

/** The line of the other side that stands for this one, where as many have come as are gone. */
function pair(lines, at, own, other, way) {
  let [first, last] = [at, at];
  while (lines[first - 1]?.sign === own) first -= 1;
  while (lines[last + 1]?.sign === own) last += 1;
  const length = last - first + 1;
  const start = way > 0 ? last + 1 : first - length;
  for (let of = start; of < start + length; of++) if (lines[of]?.sign !== other) return undefined;
  if (lines[way > 0 ? start + length : start - 1]?.sign === other) return undefined;
  return lines[start + at - first].text;
}

/** What differs within a line. */
function marked(text, other) {
  let from = 0;
  while (from < text.length && text[from] === other[from]) from += 1;
  let end = 0;
  while (end < Math.min(text.length, other.length) - from && text.at(-1 - end) === other.at(-1 - end)) end += 1;
  // Whole words.
  while (from > 0 && /\w/.test(text[from - 1])) from -= 1;
  while (end > 0 && /\w/.test(text.at(-end))) end -= 1;
  // Little in common: the whole line says it.
  if (from + end < text.length / 3) return text;
  const differs = text.slice(from, text.length - end);
  return [text.slice(0, from), differs && h('mark', {}, differs), text.slice(text.length - end)];
}
