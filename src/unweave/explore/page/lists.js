// The filter, the region of a lasso, duplicates and outliers.
import { backend } from './backend.js';
import { hit, mark, search } from './results.js';
import { $, STRIP, about, attempt, change, filter, filtered, latest, maps, message, pointOf, rows, view } from './state.js';

export const showFilter = latest(async () => {
  $('class').value = view.class;
  if (document.activeElement !== $('name')) $('name').value = view.name;
  const found = filtered() ? await backend.filter(filter()) : null;
  $('shown').textContent = found ? `${found.length.toLocaleString()} of ${about.rows.toLocaleString()}` : '';
  const points = found && Array.from(found).map((row) => pointOf.get(row)).filter((point) => point !== undefined);
  await maps?.filter(points);
  showRegion();
});

export function filterBy(changes) {
  message();
  change(changes);
  showFilter();
  search();
}

let region = [];
export const showRegion = attempt(async () => {
  region = maps && view.region ? maps.within(view.region.space, view.region.polygon).map((point) => rows[point]) : [];
  $('region').hidden = !view.region;
  $('region-count').textContent = `${region.length.toLocaleString()} image${region.length === 1 ? '' : 's'} in the region of ${view.region?.space}`
    + (region.length > STRIP ? `; the first ${STRIP} are shown` : '');
  mark();
  const first = region.slice(0, STRIP), paths = first.length ? await backend.paths(first) : [];
  $('region-images').replaceChildren(...first.map((row, i) => hit({ row, path: paths[i] })));
});

export const exportPaths = attempt(async () => {
  const paths = await backend.paths(region);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([`${paths.join('\n')}\n`], { type: 'text/plain' }));
  link.download = 'paths.txt';
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

export const showList = latest(async () => {
  const { kind, space } = view.list ?? {};
  for (const name of ['duplicates', 'outliers']) $(name).setAttribute('aria-pressed', String(kind === name));
  if (space) $('list-space').value = space;
  if (!kind) { $('list-count').textContent = ''; $('list').replaceChildren(); return; }
  $('list-count').textContent = 'Comparing all images, once…';
  try {
    if (kind === 'duplicates') {
      const { groups, sizes, found } = await backend.duplicates(space);
      $('list-count').textContent = `${found.toLocaleString()} group${found === 1 ? '' : 's'} with cosine at least 0.98`
        + (found > groups.length ? `; the ${groups.length.toLocaleString()} largest are shown` : '');
      $('list').replaceChildren(...groups.map((group, i) => {
        const element = document.createElement('div');
        element.className = 'group';
        element.append(...group.map((image) => hit(image)));
        if (sizes[i] > group.length) element.append(`and ${(sizes[i] - group.length).toLocaleString()} more`);
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
