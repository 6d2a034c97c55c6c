// The skills of a server: what each is for, and its files.

import { h, fill, doing, bytes } from '../dom.js';

export async function skills({ kernel, signal }, body, id, quiet = false) {
  const listed = await doing(() => kernel.ask('skills/list', {}));
  if (signal.aborted || !listed) return;
  // A server of another node is `node/server`, and `node+server` in a URI that keeps its scheme.
  const starts = [`skill://${id.replace('/', '+')}/`, `mcpk://${id}/`];
  const its = listed.skills.filter(({ uri }) => starts.some((start) => uri.startsWith(start)));
  if (its.length || !quiet) fill(body, its.length ? its.map(entry) : h('p', { class: 'dim' }, 'No skills right now.'));
}

function entry({ uri, frontmatter, resources }) {
  const files = Array.isArray(resources) ? resources : null;
  return h('section', {},
    h('h2', {}, String(frontmatter?.name ?? uri)),
    h('p', {}, String(frontmatter?.description ?? '')),
    h('p', { class: 'dim' }, h('code', {}, uri), files ? ` · ${files.length} files` : ' · dynamic, not verified'),
    files && h('details', {}, h('summary', {}, 'Files'),
      h('ul', {}, files.map((file) => h('li', {}, h('code', {}, file.uri), ` ${bytes(file.size)}`)))));
}
