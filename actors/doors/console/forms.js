// Forms out of JSON Schema: for the arguments of a tool, and for what a server asks a person.

import { h, dialog, visible } from './dom.js';

// Objects within objects that become fields; what is deeper is written as JSON.
const DEPTH = 3;
// Fields of one object, and values to choose from: of more, the whole is written as JSON.
const FIELDS = 200;
const CHOICES = 1000;
let count = 0;

/**
 * A form for an object. `read()` gives its value, or throws with what is wrong.
 */
export function form(schema, value = {}) {
  if (Object.keys(schema?.properties ?? {}).length > FIELDS) return whole(value);
  const fields = Object.entries(properties(schema)).map(([name, of]) =>
    field(name, of, (schema.required ?? []).includes(name), own(value, name), 1));
  const el = h('div', { class: 'form' }, fields.map((one) => one.el),
    fields.length === 0 && h('p', { class: 'dim' }, 'It takes no arguments.'));
  return { el, read: () => object(fields) };
}

/** One text of JSON for all arguments. */
function whole(value) {
  const all = field('Arguments', {}, true, value, DEPTH);
  return { el: all.el, read: all.read };
}

function properties(schema) {
  const of = schema?.properties;
  return of && typeof of === 'object' && !Array.isArray(of) && Object.keys(of).length <= FIELDS ? of : {};
}

function object(fields) {
  const value = {};
  for (const one of fields) {
    const read = one.read();
    if (read !== undefined) Object.defineProperty(value, one.name, { value: read, enumerable: true, configurable: true, writable: true });
  }
  return value;
}

function type(schema) {
  const of = Array.isArray(schema?.type) ? schema.type.find((one) => one !== 'null') : schema?.type;
  if (of) return of;
  if (schema?.enum || schema?.oneOf?.every?.((one) => 'const' in one)) return 'string';
  return schema?.properties ? 'object' : undefined;
}

/** A member that is there of itself: not what every object has, such as `__proto__`. */
const own = (value, name) => value && typeof value === 'object' && Object.hasOwn(value, name) ? value[name] : undefined;

/** The values one can choose from, with their words; none where any will do. */
function choices(schema) {
  const named = schema?.oneOf ?? schema?.anyOf;
  if (Array.isArray(named) && named.length && named.length <= CHOICES && named.every((one) => one && 'const' in one)) return named.map((one) => [one.const, one.title ?? String(one.const)]);
  if (Array.isArray(schema?.enum) && schema.enum.length <= CHOICES) return schema.enum.map((one, at) => [one, schema.enumNames?.[at] ?? String(one)]);
  return null;
}

function field(name, schema, required, value, depth) {
  const id = `f${++count}`;
  const title = visible(typeof schema?.title === 'string' ? schema.title : name);
  const about = visible(typeof schema?.description === 'string' ? schema.description : '');
  const given = value !== undefined ? value : schema?.default;
  const missing = () => { throw new Error(`${title} is required`); };
  const label = (forId) => h('label', { for: forId }, title, required && h('span', { class: 'need', title: 'required' }, ' *'));
  const help = about && h('small', { id: `${id}-about` }, about);
  const common = { id, required: required || undefined, 'aria-describedby': about ? `${id}-about` : undefined };
  const wrap = (input) => h('div', { class: 'field' }, label(id), input, help);

  const kind = type(schema);
  const options = kind !== 'array' && choices(schema);
  if (options) {
    const select = h('select', common, h('option', { value: '' }, required ? '(choose)' : '(none)'),
      options.map(([of, words], at) => h('option', { value: String(at + 1), selected: same(of, given) }, visible(words))));
    return { name, el: wrap(select), read: () => select.value ? options[Number(select.value) - 1][0] : required ? missing() : undefined };
  }
  if (kind === 'boolean') {
    const box = h('input', { ...common, type: 'checkbox', checked: given === true, required: undefined });
    return { name, el: h('div', { class: 'field check' }, box, label(id), help), read: () => box.checked || required || given !== undefined ? box.checked : undefined };
  }
  if (kind === 'number' || kind === 'integer') {
    const input = h('input', { ...common, type: 'number', step: kind === 'integer' ? '1' : 'any', min: schema.minimum, max: schema.maximum, value: given ?? '' });
    return { name, el: wrap(input), read: () => {
      if (input.value === '') return required ? missing() : undefined;
      if (!input.checkValidity()) throw new Error(`${title}: ${input.validationMessage}`);
      return Number(input.value);
    } };
  }
  if (kind === 'string') {
    const long = (schema.maxLength ?? 0) > 200 || /text|body|content|code|prompt|query|message/i.test(name) || String(given ?? '').includes('\n');
    const secret = schema.format === 'password' || /password|secret|token|api_?key/i.test(name);
    const kinds = { email: 'email', uri: 'url', date: 'date' };
    const input = long && !secret ? h('textarea', { ...common, rows: 3, value: given ?? '' })
      : h('input', { ...common, type: secret ? 'password' : kinds[schema.format] ?? 'text', value: given ?? '', autocomplete: 'off', minlength: schema.minLength, maxlength: schema.maxLength });
    return { name, secret, el: wrap(input), read: () => input.value === '' && !(required && given === '') ? (required ? missing() : undefined) : input.value };
  }
  if (kind === 'array') {
    const items = choices(schema.items);
    if (items) {
      const boxes = items.map(([of, words]) => [of, h('input', { type: 'checkbox', checked: Array.isArray(given) && given.some((one) => same(one, of)) }), words]);
      const el = h('fieldset', { class: 'field' }, h('legend', {}, title), help, boxes.map(([, box, words]) => h('label', { class: 'check' }, box, words)));
      return { name, el, read: () => {
        const chosen = boxes.filter(([, box]) => box.checked).map(([of]) => of);
        return chosen.length || required ? chosen : undefined;
      } };
    }
    if (['string', 'number', 'integer'].includes(type(schema.items))) {
      const area = h('textarea', { ...common, rows: 3, placeholder: 'one on each line', value: Array.isArray(given) ? given.join('\n') : '' });
      return { name, el: wrap(area), read: () => {
        const lines = area.value.split('\n').filter((line) => line !== '');
        if (!lines.length) return required ? [] : undefined;
        return type(schema.items) === 'string' ? lines : lines.map(Number);
      } };
    }
  }
  if (kind === 'object' && depth < DEPTH && Object.keys(properties(schema)).length) {
    const inner = Object.entries(properties(schema)).map(([of, its]) => field(of, its, (schema.required ?? []).includes(of), own(given, of), depth + 1));
    const el = h('fieldset', { class: 'field' }, h('legend', {}, title), help, inner.map((one) => one.el));
    return { name, el, read: () => {
      if (required) return object(inner);
      try {
        const read = object(inner);
        return Object.keys(read).length ? read : undefined;
      } catch (error) {
        const touched = inner.some((one) => { try { return one.read() !== undefined; } catch { return false; } });
        if (touched) throw error;
        return undefined;
      }
    } };
  }
  const area = h('textarea', { ...common, rows: 3, class: 'mono', placeholder: 'JSON', value: given === undefined ? '' : JSON.stringify(given, null, 2) });
  return { name, el: wrap(area), read: () => {
    if (area.value.trim() === '') return required ? missing() : undefined;
    try { return JSON.parse(area.value); } catch (error) { throw new Error(`${title} is no JSON: ${error.message}`); }
  } };
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Asks the person what a server asks (`elicitation/create`), and gives the answer. `from` is whose question it is. */
export async function question(params, from) {
  const title = from ? `${visible(from)} asks` : 'A server asks';
  const message = h('p', { class: 'said' }, visible(params.message));
  if (params.mode === 'url') {
    const at = h('p', {}, 'It wants you to open a page of ', h('b', {}, host(params.url)), ': ', h('code', {}, visible(params.url)));
    const answer = await dialog(title, [message, at], [
      { text: 'Cancel', says: () => 'cancel' },
      { text: 'Decline', says: () => 'decline' },
      { text: 'Accept and open', kind: 'main', says: () => {
        if (/^https?:\/\//i.test(params.url)) window.open(params.url, '_blank', 'noopener,noreferrer');
        return 'accept';
      } },
    ]);
    return { action: answer ?? 'cancel' };
  }
  const asked = form(params.requestedSchema ?? {});
  const wrong = h('p', { class: 'note bad', role: 'alert', hidden: true });
  const answer = await dialog(title, [message, asked.el, wrong], [
    { text: 'Cancel', says: () => ({ action: 'cancel' }) },
    { text: 'Decline', says: () => ({ action: 'decline' }) },
    { text: 'Accept', kind: 'main', says: () => {
      try {
        return { action: 'accept', content: asked.read() };
      } catch (error) {
        wrong.textContent = visible(error.message);
        wrong.hidden = false;
        return null;
      }
    } },
  ]);
  return answer ?? { action: 'cancel' };
}

/** Whose page an address leads to, as the browser reads it. */
function host(url) {
  try { return new URL(url).host || 'nobody'; } catch { return 'nobody'; }
}
