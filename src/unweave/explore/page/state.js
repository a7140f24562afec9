// What all parts of the page share: the index, the maps, and the view, which is also in the address.
import { write } from './view.js';

export const $ = (id) => document.getElementById(id);
/** Images shown in a column, and in a strip. */
export const K = 24, STRIP = 60;
/** Pictures that were uploaded in this session, by the name that the server gave them. */
export const previews = new Map();
export let about, rows, pointOf, maps, view;

export function setIndex(known, ofPoints) {
  about = known;
  rows = ofPoints;
  pointOf = new Map(Array.from(rows, (row, point) => [row, point]));
}
export function setMaps(made) { maps = made; }
export function setView(restored) { view = restored; }

export const message = (text = '') => { $('message').textContent = text; };
export const attempt = (work) => async (...given) => {
  try {
    return await work(...given);
  } catch (error) {
    message(error.message);
  }
};

/** Runs one call at a time. Of the calls that arrive meanwhile only the last is made: its answer is the one to show. */
export function latest(work) {
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

export const query = () => (view.upload !== null ? { upload: view.upload } : view.row !== null ? { row: view.row } : null);
export const filter = () => ({ class: view.class, name: view.name });
export const filtered = () => Boolean(view.class || view.name);

export function change(changes, { push = false } = {}) {
  Object.assign(view, changes);
  history[push ? 'pushState' : 'replaceState'](null, '', write(view));
}
