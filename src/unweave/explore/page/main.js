import { backend } from './backend.js';
import { Maps } from './maps.js';
import { read, shortened, write } from './view.js';

const $ = (id) => document.getElementById(id);
const K = 24, STRIP = 60;
let about, maps, rows, pointOf, view;

const message = (text = '') => { $('message').textContent = text; };
const attempt = (work) => async (...given) => {
  try {
    return await work(...given);
  } catch (error) {
    message(error.message);
  }
};

/** Runs one call at a time. Of the calls that arrive meanwhile only the last is made: its answer is the one to show. */
function latest(work) {
  let running = false, next = null;
  return async function run(...given) {
    if (running) { next = given; return; }
    running = true;
    try {
      await attempt(work)(...given);
    } finally {
      running = false;
      if (next) { const given = next; next = null; run(...given); }
    }
  };
}

const query = () => (view.upload !== null ? { upload: view.upload } : view.row !== null ? { row: view.row } : null);
const filter = () => ({ class: view.class, name: view.name });
const filtered = () => Boolean(view.class || view.name);

function change(changes, { push = false } = {}) {
  Object.assign(view, changes);
  history[push ? 'pushState' : 'replaceState'](null, '', write(view));
}

// Images in columns and lists.

function hit(image, text) {
  const button = document.createElement('button');
  button.className = 'hit';
  button.type = 'button';
  button.dataset.row = image.row;
  button.title = [image.path, image.class, image.scores && details(image.scores)].filter(Boolean).join('\n');
  const picture = button.appendChild(document.createElement('img'));
  picture.loading = 'lazy';
  picture.alt = image.path;
  picture.src = backend.thumbnail(image.row);
  if (text) button.append(text);
  button.classList.toggle('selected', image.row === view.row);
  return button;
}

const details = (scores) => Object.entries(scores).map(([space, cosine]) => `${space} ${cosine.toFixed(2)}`).join(' · ');

function column(name, hits, score) {
  const element = document.createElement('div');
  element.className = 'column';
  element.dataset.space = name;
  element.appendChild(document.createElement('h3')).textContent = name;
  const list = element.appendChild(document.createElement('div'));
  list.className = 'hits';
  list.append(...hits.map((image) => hit(image, score(image).toFixed(2))));
  if (!hits.length) list.outerHTML = '<p class="empty">No image satisfies the filter and the floors.</p>';
  return element;
}

const showMix = latest(async () => {
  const weights = Object.fromEntries(Object.entries(view.weights).filter(([, weight]) => weight !== 0));
  if (!query()) return;
  const hits = Object.keys(weights).length
    ? await backend.search({ query: query(), weights, minimum: view.minimum, k: K, ...filter() })
    : [];
  const mix = column('mix', hits, (image) => image.score);
  mix.classList.add('mix');
  mix.querySelector('h3').title = 'Σ weight / spread · cosine';
  if (!Object.keys(weights).length) mix.querySelector('.empty').textContent = 'Move a slider.';
  $('columns').querySelector('.mix')?.remove();
  $('columns').prepend(mix);
});

const showColumns = latest(async () => {
  if (!query()) return;
  const found = await backend.columns({ query: query(), k: K, ...filter() });
  $('columns').querySelectorAll('.column:not(.mix)').forEach((old) => old.remove());
  for (const space of about.spaces) $('columns').append(column(space, found[space], (image) => image.scores[space]));
});

function search() {
  if (!query()) $('columns').replaceChildren();
  showMix();
  showColumns();
}

// The selected image.

const showChosen = attempt(async () => {
  const picture = $('picture'), row = view.row;
  picture.hidden = !query();
  if (view.upload !== null) {
    picture.src = preview.get(view.upload) || 'data:,';
    picture.hidden = !preview.has(view.upload);
    $('caption').textContent = 'Your picture';
  } else if (row !== null) {
    picture.src = backend.image(row);
    const known = await backend.row(row);
    if (view.row === row) $('caption').textContent = [known.path, known.class, `row ${row}`].filter(Boolean).join(' · ');
    if (maps && !pointOf.has(row)) $('caption').textContent += ' · not in the sample that the maps show';
  } else {
    $('caption').textContent = backend.uploads ? 'Click a point, or upload a picture.' : 'Click a point.';
  }
  document.querySelectorAll('.hit').forEach((button) => button.classList.toggle('selected', Number(button.dataset.row) === row));
});

function mark() {
  if (!maps) return;
  const region = view.region ? maps.within(view.region.space, view.region.polygon) : [];
  const chosen = view.row !== null && pointOf.has(view.row) ? [pointOf.get(view.row)] : [];
  maps.select(region.length ? region : chosen);
}

function choose(row) {
  message();
  change({ row, upload: null }, { push: true });
  showChosen();
  mark();
  search();
}

// Sliders.

function makeSliders() {
  for (const [i, space] of about.spaces.entries()) {
    const slider = $('sliders').appendChild(document.createElement('div'));
    slider.className = 'slider';
    slider.innerHTML = '<label><span class="names"><span></span><output></output></span><input type="range" min="-1" max="1" step="0.05"></label>'
      + '<label class="floor">cosine at least <input type="number" min="-1" max="1" step="0.01" placeholder="any"></label>';
    slider.querySelector('.names span').textContent = space;
    const [range, floor] = slider.querySelectorAll('input');
    range.dataset.space = floor.dataset.space = space;
    range.title = `Key ${i + 1}. A negative weight seeks the opposite.`;
    range.addEventListener('input', () => {
      change({ weights: { ...view.weights, [space]: Number(range.value) } });
      showSliders();
      showMix();
    });
    floor.addEventListener('input', () => {
      const minimum = { ...view.minimum };
      delete minimum[space];
      if (floor.value !== '' && floor.checkValidity()) minimum[space] = Number(floor.value);
      change({ minimum });
      showMix();
    });
  }
}

function showSliders() {
  for (const input of $('sliders').querySelectorAll('input')) {
    const { space } = input.dataset;
    if (input.type === 'range') {
      input.value = view.weights[space];
      input.closest('.slider').querySelector('output').textContent = view.weights[space].toFixed(2);
    } else if (document.activeElement !== input) input.value = view.minimum[space] ?? '';
  }
}

// Filter, region, lists.

const showFilter = latest(async () => {
  $('class').value = view.class;
  if (document.activeElement !== $('name')) $('name').value = view.name;
  const found = filtered() ? await backend.filter(filter()) : null;
  $('shown').textContent = found ? `${found.length.toLocaleString()} of ${about.rows.toLocaleString()}` : '';
  const points = found && Array.from(found).map((row) => pointOf.get(row)).filter((point) => point !== undefined);
  await maps?.filter(points);
  showRegion();
});

function filterBy(changes) {
  message();
  change(changes);
  showFilter();
  search();
}

let region = [];
const showRegion = attempt(async () => {
  region = maps && view.region ? maps.within(view.region.space, view.region.polygon).map((point) => rows[point]) : [];
  $('region').hidden = !view.region;
  $('region-count').textContent = `${region.length.toLocaleString()} image${region.length === 1 ? '' : 's'} in the region of ${view.region?.space}`;
  mark();
  const first = region.slice(0, STRIP), paths = first.length ? await backend.paths(first) : [];
  $('region-images').replaceChildren(...first.map((row, i) => hit({ row, path: paths[i] })));
});

const exportPaths = attempt(async () => {
  const paths = await backend.paths(region);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([`${paths.join('\n')}\n`], { type: 'text/plain' }));
  link.download = 'paths.txt';
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

const showList = latest(async () => {
  const { kind, space } = view.list ?? {};
  for (const name of ['duplicates', 'outliers']) $(name).setAttribute('aria-pressed', String(kind === name));
  if (space) $('list-space').value = space;
  if (!kind) { $('list-count').textContent = ''; $('list').replaceChildren(); return; }
  $('list-count').textContent = 'Comparing all images, once…';
  try {
    if (kind === 'duplicates') {
      const { groups, found } = await backend.duplicates(space);
      $('list-count').textContent = `${found.toLocaleString()} group${found === 1 ? '' : 's'} with cosine at least 0.98`;
      $('list').replaceChildren(...groups.map((group) => {
        const element = document.createElement('div');
        element.className = 'group';
        element.append(...group.slice(0, STRIP).map((image) => hit(image)));
        return element;
      }));
    } else {
      const found = await backend.outliers(space);
      $('list-count').textContent = 'smallest mean cosine to their neighbours first';
      const list = document.createElement('div');
      list.className = 'hits';
      list.append(...found.map((image) => hit(image, image.cosine.toFixed(2))));
      $('list').replaceChildren(list);
    }
  } catch (error) {
    $('list-count').textContent = '';
    throw error;
  }
});

// Uploads.

const preview = new Map();
const upload = attempt(async (file) => {
  if (!file) return;
  if (!backend.uploads) throw new Error('This page is made of plain files and cannot embed a picture: run unweave explore.');
  if (file.size > about.max_upload_mb * 1e6) throw new Error(`The file is larger than ${about.max_upload_mb} MB.`);
  message('Embedding your picture…');
  const answer = await backend.upload(file);
  preview.set(answer.upload, answer.preview);
  message();
  change({ upload: answer.upload, row: null }, { push: true });
  showChosen();
  mark();
  search();
});

// Hover.

const tip = $('tip');
const over = attempt(async (point, space) => {
  const row = rows[point];
  maps.hover(point);
  tip.dataset.row = row;
  tip.querySelector('img').src = backend.thumbnail(row);
  tip.querySelector('span').textContent = '';
  const [x, y] = maps.place(space, point);
  tip.hidden = false;
  tip.style.left = `${Math.min(x + 14, innerWidth - 160)}px`;
  tip.style.top = `${Math.min(y + 14, innerHeight - 190)}px`;
  const known = await backend.row(row);
  if (tip.dataset.row === String(row)) tip.querySelector('span').textContent = [known.path, known.class].filter(Boolean).join(' · ');
});
const out = () => { tip.hidden = true; maps.hover(-1); };

// Events.

function lassoMode(on) {
  $('lasso').setAttribute('aria-pressed', String(on));
  maps?.mode(on);
}
const lassoOn = () => $('lasso').getAttribute('aria-pressed') === 'true';
const theme = () => document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');

function clear() {
  if (view.region) { change({ region: null }); showRegion(); return; }
  change({ row: null, upload: null }, { push: true });
  showChosen();
  mark();
  search();
}

function neighbour(step) {
  const focused = document.activeElement;
  if (focused.classList.contains('hit')) {
    const all = [...document.querySelectorAll('.hit')];
    all[all.indexOf(focused) + step]?.focus();
  } else {
    choose(view.row === null ? 0 : (view.row + step + about.rows) % about.rows);
  }
}

function listen() {
  document.addEventListener('click', ({ target }) => {
    const button = target.closest('.hit');
    if (button) choose(Number(button.dataset.row));
  });
  for (const [kind, on] of [['mouseover', true], ['mouseout', false], ['focusin', true], ['focusout', false]]) {
    document.addEventListener(kind, ({ target }) => {
      const button = target.closest?.('.hit');
      if (button) maps?.hover(on ? pointOf.get(Number(button.dataset.row)) ?? -1 : -1);
    });
  }
  $('filter').addEventListener('submit', (event) => event.preventDefault());
  $('class').addEventListener('change', () => filterBy({ class: $('class').value }));
  $('name').addEventListener('input', () => filterBy({ name: $('name').value }));
  $('lasso').addEventListener('click', () => lassoMode(!lassoOn()));
  $('upload').addEventListener('click', () => $('file').click());
  $('file').addEventListener('change', () => { upload($('file').files[0]); $('file').value = ''; });
  $('help').addEventListener('click', () => $('keys').showModal());
  $('clear').addEventListener('click', clear);
  $('export').addEventListener('click', exportPaths);
  for (const kind of ['duplicates', 'outliers']) {
    $(kind).addEventListener('click', () => {
      change({ list: view.list?.kind === kind ? null : { kind, space: $('list-space').value } });
      showList();
    });
  }
  $('list-space').addEventListener('change', () => {
    if (view.list) { change({ list: { ...view.list, space: $('list-space').value } }); showList(); }
  });
  $('theme').addEventListener('click', () => {
    document.documentElement.dataset.theme = theme() === 'dark' ? 'light' : 'dark';
    maps?.theme(theme());
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => maps?.theme(theme()));
  addEventListener('dragover', (event) => { event.preventDefault(); document.body.classList.add('dropping'); });
  addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dropping'); });
  addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dropping');
    upload(event.dataTransfer.files[0]);
  });
  addEventListener('paste', (event) => { if (event.clipboardData?.files.length) upload(event.clipboardData.files[0]); });
  addEventListener('popstate', restore);
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $('keys').open) return;
    const typing = event.target.matches('input, select, textarea');
    if (event.key === 'Escape') { if (typing) event.target.blur(); else clear(); return; }
    if (typing) return;
    const keys = {
      '/': () => $('name').focus(), '?': () => $('keys').showModal(), l: () => lassoMode(!lassoOn()),
      u: () => backend.uploads && $('file').click(), ArrowLeft: () => neighbour(-1), ArrowRight: () => neighbour(1),
    };
    const slider = /^[1-9]$/.test(event.key) && $('sliders').querySelectorAll('input[type=range]')[event.key - 1];
    if (slider) slider.focus();
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  });
}

function restore() {
  view = read(location.hash, about.spaces);
  if (view.row !== null && view.row >= about.rows) {
    message(`There is no row ${view.row}: the index has ${about.rows.toLocaleString()} images.`);
    view.row = null;
  }
  if (view.upload !== null && !preview.has(view.upload)) {
    message('The picture of this address was uploaded in another session: upload it again.');
    view.upload = null;
  }
  showSliders();
  showChosen();
  showFilter();
  search();
  showList();
}

async function start() {
  about = await backend.about();
  rows = await backend.rows();
  pointOf = new Map(Array.from(rows, (row, point) => [row, point]));
  const sampled = about.points < about.rows ? `, ${about.points.toLocaleString()} in the maps` : '';
  $('about').textContent = `${about.rows.toLocaleString()} images${sampled} · ${about.map === 'pacmap' ? 'PaCMAP' : 'PCA'}`;
  $('class-label').hidden = !about.classes.length;
  $('class').append(...about.classes.map(({ name, count }) => new Option(`${name} (${count.toLocaleString()})`, name)));
  $('list-space').append(...about.spaces.map((space) => new Option(space, space)));
  $('upload').hidden = !backend.uploads;
  makeSliders();
  try {
    maps = new Maps($('maps'), about.spaces, {
      over, out,
      click: (point) => choose(rows[point]),
      lasso: (space, polygon) => {
        lassoMode(false);
        change({ region: { space, polygon: shortened(polygon) } });
        showRegion();
      },
    });
    await maps.draw((space) => backend.points(space), await backend.classes(), theme());
  } catch (error) {
    maps = undefined;
    $('maps').replaceChildren();
    message(`The maps need WebGL, which does not work in this browser (${error.message}). The search works without.`);
  }
  listen();
  restore();
  document.body.dataset.ready = 'true';
}

attempt(start)();
