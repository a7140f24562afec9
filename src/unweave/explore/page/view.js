// The view as the part of the address after #, so that a link restores it.
/** How far a simplified polygon may be from the one that was drawn, as parts of its size. */
const TOLERANCES = [0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001];

const numbers = (values) => Object.entries(values).map(([name, value]) => `${encodeURIComponent(name)}:${value}`).join(',');

/** A polygon with fewer corners and digits, for an address, that `same` accepts; the given one where it accepts none. */
export function simplified(polygon, same) {
  const sizes = [0, 1].map((axis) => {
    const values = polygon.map((corner) => corner[axis]);
    return Math.max(...values) - Math.min(...values);
  });
  for (const part of TOLERANCES) {
    const tolerance = part * Math.max(...sizes), digits = Math.min(15, Math.max(0, 1 - Math.floor(Math.log10(tolerance))));
    const shorter = outline(polygon, tolerance).map((corner) => corner.map((x) => Number(x.toFixed(digits))));
    if (shorter.length > 2 && same(shorter)) return shorter;
  }
  return polygon;
}

/** The corners of a line from which no other is farther than the tolerance (Douglas and Peucker). */
function outline(line, tolerance) {
  const [first, last] = [line[0], line.at(-1)];
  let far = 0, most = tolerance;
  for (let i = 1; i < line.length - 1; i++) {
    const distance = distanceTo(line[i], first, last);
    if (distance > most) [far, most] = [i, distance];
  }
  if (!far) return line.length > 1 ? [first, last] : line;
  return [...outline(line.slice(0, far + 1), tolerance).slice(0, -1), ...outline(line.slice(far), tolerance)];
}

/** Distance of a point to the part of a line from a to b. */
function distanceTo([x, y], [ax, ay], [bx, by]) {
  const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
  const t = length && Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / length));
  return Math.hypot(x - ax - t * dx, y - ay - t * dy);
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
