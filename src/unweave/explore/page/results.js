// The selected image, and what is near it: a column for the mix, and one for each space.
import { backend } from './backend.js';
import { $, K, about, attempt, change, filter, latest, maps, message, pointOf, previews, query, view } from './state.js';

export function hit(image, text) {
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

export const showMix = latest(async () => {
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

export function search() {
  if (!query()) $('columns').replaceChildren();
  showMix();
  showColumns();
}

// The selected image.

export const showChosen = attempt(async () => {
  const picture = $('picture'), row = view.row;
  picture.hidden = !query();
  if (view.upload !== null) {
    picture.src = previews.get(view.upload) || 'data:,';
    picture.hidden = !previews.has(view.upload);
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

export function mark() {
  if (!maps) return;
  const region = view.region ? maps.within(view.region.space, view.region.polygon) : [];
  maps.select(region, pointOf.get(view.row) ?? -1);
}

export function choose(row) {
  message();
  change({ row, upload: null }, { push: true });
  showChosen();
  mark();
  search();
}
