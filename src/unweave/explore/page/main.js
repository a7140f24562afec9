// Uploads, hovering, events, and the start of the page.
import { backend } from './backend.js';
import { exportPaths, filterBy, showFilter, showList, showRegion } from './lists.js';
import { Maps } from './maps.js';
import { choose, mark, search, showChosen } from './results.js';
import { makeSliders, showSliders } from './sliders.js';
import { $, about, attempt, change, maps, message, pointOf, previews, rows, setIndex, setMaps, setView, view } from './state.js';
import { read } from './view.js';

// Uploads.

/** Types that every browser reads. */
const COMMON = ['image/bmp', 'image/gif', 'image/jpeg', 'image/png', 'image/svg+xml', 'image/webp'];

/** Refuses what the server would refuse: the browser writes each refusal of the server to its console as an error. */
async function check(file) {
  if (file.size > about.max_upload_mb * 1e6) throw new Error(`The file is larger than ${about.max_upload_mb} MB.`);
  if (file.type && !file.type.startsWith('image/')) throw new Error(`The picture cannot be read: ${file.name} is not an image.`);
  const picture = await createImageBitmap(file).catch(() => null); // TIFF, for example, only the server reads
  if (!picture && COMMON.includes(file.type)) throw new Error(`The picture cannot be read: ${file.name} is damaged or not an image.`);
  const pixels = picture ? picture.width * picture.height : 0;
  picture?.close();
  if (pixels > about.max_pixels) {
    throw new Error(`The picture cannot be read: it has more than ${about.max_pixels.toLocaleString()} pixels.`);
  }
}

const upload = attempt(async (file) => {
  if (!file) return;
  if (!backend.uploads) throw new Error('This page is made of plain files and cannot embed a picture: run unweave explore.');
  await check(file);
  message('Embedding your picture…');
  const answer = await backend.upload(file);
  previews.set(answer.upload, answer.preview);
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
  setView(read(location.hash, about.spaces));
  if (view.row !== null && view.row >= about.rows) {
    message(`There is no row ${view.row}: the index has ${about.rows.toLocaleString()} images.`);
    view.row = null;
  }
  if (view.upload !== null && !previews.has(view.upload)) {
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
  setIndex(await backend.about(), await backend.rows());
  const sampled = about.points < about.rows ? `, ${about.points.toLocaleString()} in the maps` : '';
  $('about').textContent = `${about.rows.toLocaleString()} images${sampled} · ${about.map === 'pacmap' ? 'PaCMAP' : 'PCA'}`;
  $('class-label').hidden = !about.classes.length;
  $('class').append(...about.classes.map(({ name, count }) => new Option(`${name} (${count.toLocaleString()})`, name)));
  $('list-space').append(...about.spaces.map((space) => new Option(space, space)));
  $('upload').hidden = !backend.uploads;
  makeSliders();
  try {
    setMaps(new Maps($('maps'), about.spaces, {
      over, out,
      click: (point) => choose(rows[point]),
      lasso: (space, polygon) => {
        lassoMode(false);
        change({ region: { space, polygon: maps.simplified(space, polygon) } });
        showRegion();
      },
    }));
    await maps.draw((space) => backend.points(space), await backend.classes(), theme());
  } catch (error) {
    setMaps(undefined);
    $('maps').replaceChildren();
    message(`The maps need WebGL, which does not work in this browser (${error.message}). The search works without.`);
  }
  listen();
  restore();
  document.body.dataset.ready = 'true';
}

attempt(start)();
