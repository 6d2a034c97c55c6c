// Cluster: the nodes by their distance, what they share, and who may come in.

import { h, fill, doing, say, dialog, pill, span } from '../dom.js';

const SVG = 'http://www.w3.org/2000/svg';

export default function cluster({ main, kernel, on, signal }) {
  const place = h('div', {});
  const again = h('button', { onclick: (event) => doing(read, event.target) }, 'Look again');
  main.append(h('div', { class: 'row' }, h('h1', {}, 'Cluster'), h('div', { class: 'row end grow' }, again, h('button', { class: 'main', onclick: (event) => invite(kernel, event.target).then(() => doing(read)) }, 'Invite a node…'))), place);

  async function read() {
    const [own, there, shares] = await Promise.all([kernel.ask('mgp/kernel/nodes/id'), kernel.ask('mgp/kernel/nodes/list'), kernel.ask('mgp/kernel/shares/list')]);
    if (signal.aborted) return;
    fill(place, (there.troubles ?? []).map((trouble) => h('p', { class: 'note bad' }, trouble)),
      there.id === undefined && h('p', { class: 'note' }, 'This node is in no cluster. Inviting another one founds it.'),
      there.nodes.length > 1 && map(there.nodes),
      h('dl', { class: 'facts' }, [['This node', own.name], ['Its words', own.words], ['Role', own.role ?? 'none yet'], ['Listens on', there.listens ?? 'nothing'], ['Id', own.id]].map(([name, value]) => [h('dt', {}, name), h('dd', { class: name === 'Id' ? 'mono wrap' : '' }, value)])),
      (there.waiting ?? []).length > 0 && h('p', { class: 'note warn' }, `${there.waiting.length} wait to be let in: `, h('a', { href: '#/waiting' }, 'look')),
      there.nodes.length > 0 && h('div', { class: 'cards' }, there.nodes.map((node) => card(node, kernel, read))),
      h('h2', {}, 'Shared from here'),
      shares.shares.length ? h('ul', {}, shares.shares.map((share) => h('li', {}, `${share.server} (${share.tools}) with ${share.to}${share.means !== undefined && share.means !== null ? `: ${share.means} tools` : ''}${share.why ? ` · ${share.why}` : ''}`))) : h('p', { class: 'empty' }, 'Nothing. ', h('code', {}, 'mgp shares add SERVER'), ' shares a server.'));
  }
  on('cluster', () => doing(read));
  doing(read);
}

function card(node, kernel, read) {
  const kinds = { here: 'good', linked: 'good', away: 'bad', left: '', revoked: '' };
  const cut = async (button) => {
    const sure = await dialog('Cut it off?', h('p', {}, `${node.name} is cut off everywhere and for good.`), [{ text: 'Leave it', says: () => false }, { text: 'Cut it off', kind: 'bad', says: () => true }]);
    if (sure) await doing(async () => { const told = await kernel.ask('mgp/kernel/nodes/revoke', { node: node.name }); say(`${node.name} is cut off; ${told.confirmed.nodes} of ${told.confirmed.of} know`, 'good'); await read(); }, button);
  };
  return h('article', { class: 'card' }, h('header', { class: 'row' }, h('b', {}, node.name), pill(kinds[node.standing] ?? '', node.standing), pill('', node.role)),
    h('p', { class: 'dim' }, [node.address, node.rtt_us !== undefined && `${(node.rtt_us / 1000).toFixed(1)} ms away`, node.since_ms !== undefined && `for ${span(node.since_ms)}`,
      node.index_age_ms !== undefined && `index told ${span(node.index_age_ms)} ago`, node.clock_ms && `clock differs by ${node.clock_ms} ms`].filter(Boolean).join(' · ')),
    node.why && h('p', { class: 'note bad' }, node.why),
    (node.servers ?? []).length > 0 && h('p', { class: 'row' }, node.servers.map((server) => node.standing === 'linked' ? h('a', { href: `#/servers/${encodeURIComponent(`${node.name}/${server.id}`)}` }, `${server.id} (${server.tools})`) : `${server.id} (${server.tools})`)),
    ['linked', 'away'].includes(node.standing) && h('button', { class: 'bad small', onclick: (event) => cut(event.target) }, 'Cut off…'));
}

/** This node in the middle, the others around it, the farther the longer the way there and back. */
function map(nodes) {
  const svg = document.createElementNS(SVG, 'svg');
  const make = (tag, attributes, words) => {
    const el = document.createElementNS(SVG, tag);
    Object.entries(attributes).forEach(([name, value]) => el.setAttribute(name, value));
    if (words) el.textContent = words;
    svg.append(el);
    return el;
  };
  // Drawn as wide as it is shown, so that names have the size of a text on a telephone, too.
  const wide = innerWidth > 700 ? 720 : 360;
  const middle = wide / 2;
  svg.setAttribute('viewBox', `0 0 ${wide} 300`);
  svg.setAttribute('class', 'map');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `${nodes.length} nodes; the cards below say the same in words`);
  const others = nodes.filter((node) => node.standing !== 'here').slice(0, 24);
  const far = Math.max(1, ...others.map((node) => Math.log10((node.rtt_us ?? 1000) + 10)));
  others.forEach((node, at) => {
    const angle = (at / others.length) * 2 * Math.PI;
    const length = node.standing === 'linked' ? 0.45 + 0.5 * (Math.log10((node.rtt_us ?? 1000) + 10) / far) : 1;
    const [x, y] = [middle + Math.cos(angle) * (middle - 60) * length, 150 + Math.sin(angle) * 110 * length];
    make('line', { x1: middle, y1: 150, x2: x, y2: y, class: `way ${node.standing}` });
    make('circle', { cx: x, cy: y, r: 9, class: `node ${node.standing}` });
    // On the side that no line comes from.
    make('text', { x, y: y < 150 ? y - 16 : y + 24, class: 'node-name' }, `${node.name}${node.rtt_us !== undefined ? ` ${(node.rtt_us / 1000).toFixed(1)} ms` : ''}`);
  });
  make('circle', { cx: middle, cy: 150, r: 12, class: 'node here' });
  make('text', { x: middle, y: 178, class: 'node-name' }, nodes.find((node) => node.standing === 'here')?.name ?? '');
  return svg;
}

async function invite(kernel, button) {
  const role = h('select', { id: 'role' }, ['member', 'leaf', 'admin'].map((word) => h('option', { value: word }, word)));
  const wanted = await dialog('Invite a node', h('div', { class: 'field' }, h('label', { for: 'role' }, 'It may be'), role), [{ text: 'Cancel', says: () => undefined }, { text: 'Make a ticket', kind: 'main', says: () => ({ role: role.value }) }]);
  if (!wanted) return;
  const made = await doing(() => kernel.ask('mgp/kernel/nodes/invite', wanted), button);
  if (!made) return;
  const area = (label, value) => h('div', { class: 'field' }, h('label', {}, label, h('textarea', { readonly: true, rows: 4, class: 'mono', value })));
  await dialog('The ticket', [h('p', {}, 'It is shown this once. On the other machine: ', h('code', {}, 'mgp nodes join'), ', then paste it. When it asks, both show the same three words.'), area('Ticket', made.ticket),
    made.founded && [h('p', { class: 'note warn' }, 'A cluster was founded. Keep its recovery key: it is the only way on when no admin is left.'), area('Recovery key', made.founded.recovery_key)]], [{ text: 'Done', kind: 'main', says: () => true }]);
}
