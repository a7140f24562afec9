// The view as the part of the address after #, so that a link restores it.
const VERTICES = 40;

const numbers = (values) => Object.entries(values).map(([name, value]) => `${encodeURIComponent(name)}:${value}`).join(',');

/** A polygon that is short enough for an address. */
export function shortened(polygon) {
  const every = Math.ceil(polygon.length / VERTICES);
  return polygon.filter((_, i) => i % every === 0).map((corner) => corner.map((x) => Number(x.toFixed(3))));
}

export function write(view) {
  const parts = new URLSearchParams();
  if (view.row !== null) parts.set('row', view.row);
  if (view.upload !== null) parts.set('upload', view.upload);
  parts.set('w', numbers(Object.fromEntries(Object.entries(view.weights).filter(([, weight]) => weight !== 0))));
  if (numbers(view.minimum)) parts.set('min', numbers(view.minimum));
  if (view.class) parts.set('class', view.class);
  if (view.name) parts.set('name', view.name);
  if (view.list) parts.set('list', `${view.list.kind}:${encodeURIComponent(view.list.space)}`);
  if (view.region) {
    const { space, polygon } = view.region;
    parts.set('region', `${encodeURIComponent(space)}:${polygon.map((corner) => corner.join(',')).join(';')}`);
  }
  return `#${parts}`;
}

export function read(hash, spaces) {
  const parts = new URLSearchParams(hash.slice(1));
  const values = (text) => {
    const found = {};
    for (const part of (text || '').split(',')) {
      const [name, value] = part.split(':');
      const space = decode(name);
      if (spaces.includes(space) && Number.isFinite(Number(value))) found[space] = Math.max(-1, Math.min(1, Number(value)));
    }
    return found;
  };
  const view = {
    row: /^\d+$/.test(parts.get('row') ?? '') ? Number(parts.get('row')) : null,
    upload: parts.get('upload'),
    weights: Object.fromEntries(spaces.map((space) => [space, 0])),
    minimum: values(parts.get('min')),
    class: parts.get('class') || '',
    name: parts.get('name') || '',
    list: null,
    region: null,
  };
  Object.assign(view.weights, parts.has('w') ? values(parts.get('w')) : { [spaces[0]]: 1 });
  const [kind, listed] = (parts.get('list') || '').split(':');
  if (['duplicates', 'outliers'].includes(kind) && spaces.includes(decode(listed))) view.list = { kind, space: decode(listed) };
  const [mapped, corners] = (parts.get('region') || '').split(':');
  const polygon = (corners || '').split(';').map((corner) => corner.split(',').map(Number));
  if (spaces.includes(decode(mapped)) && polygon.length > 2 && polygon.flat().every(Number.isFinite)) {
    view.region = { space: decode(mapped), polygon };
  }
  return view;
}

function decode(text) {
  try {
    return decodeURIComponent(text ?? '');
  } catch {
    return '';
  }
}
