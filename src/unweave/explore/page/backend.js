// Where the page's data come from: the server, or the plain files that `unweave explore --static` writes.
// Both have the same functions. Rows are row numbers of the index, points their places in the maps.

async function fetched(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error('The server does not answer: is `unweave explore` still running?');
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.error || `${response.status} ${response.statusText}`);
  }
  return response;
}

const json = async (address, options) => (await fetched(address, options)).json();
const array = async (Type, address) => new Type(await (await fetched(address)).arrayBuffer());
const asked = (address, request) =>
  json(address, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(request) });

class Server {
  uploads = true;
  #known = new Map();

  async about() {
    const about = await json('api/index');
    this.version = about.version;
    return about;
  }
  rows() { return array(Uint32Array, 'api/rows'); }
  classes() { return array(Int32Array, 'api/classes'); }
  points(space) { return array(Float32Array, `api/points/${encodeURIComponent(space)}`); }
  thumbnail(row) { return `thumbnail/${row}?v=${this.version}`; }
  image(row) { return `image/${row}?v=${this.version}`; }
  row(row) {
    if (!this.#known.has(row)) this.#known.set(row, json(`api/row/${row}`));
    return this.#known.get(row);
  }
  filter(filter) { return array(Uint32Array, `api/filter?${new URLSearchParams(filter)}`); }
  async search(request) { return (await asked('api/search', request)).hits; }
  async columns(request) { return (await asked('api/columns', request)).columns; }
  duplicates(space) { return json(`api/duplicates/${encodeURIComponent(space)}`); }
  async outliers(space) { return (await json(`api/outliers/${encodeURIComponent(space)}`)).outliers; }
  async paths(rows) { return (await asked('api/paths', { rows })).paths; }
  upload(file) { return json('api/upload', { method: 'POST', body: file }); }
}

class Static {
  uploads = false;
  #vectors = new Map();

  async about() {
    this.known = await json('data/index.json');
    return this.known;
  }
  async rows() { return Uint32Array.from({ length: this.known.rows }, (_, row) => row); }
  async classes() {
    const place = new Map(this.known.classes.map(({ name }, i) => [name, i]));
    return Int32Array.from(this.known.class_of, (name) => place.get(name) ?? -1);
  }
  points(space) { return array(Float32Array, `data/points-${this.#place(space)}.f32`); }
  thumbnail(row) { return `data/thumbnails/${row}.jpg`; }
  image(row) { return this.thumbnail(row); }
  async row(row) {
    if (!(row >= 0 && row < this.known.rows)) throw new Error(`There is no row ${row}.`);
    return { row, path: this.known.paths[row], class: this.known.class_of[row] };
  }
  async filter({ class: wanted, name }) {
    // As in SQL's LIKE: % is any text, _ any character.
    const pattern = new RegExp(name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll('%', '.*').replaceAll('_', '.'), 's');
    const all = await this.rows();
    return all.filter((row) => (!wanted || this.known.class_of[row] === wanted) && pattern.test(this.known.paths[row]));
  }
  async search({ query, weights, minimum = {}, k, ...filter }) {
    const cosines = {};
    for (const space of this.known.spaces) cosines[space] = await this.#cosines(space, query.row);
    const rows = (await this.filter({ class: '', name: '', ...filter })).filter(
      (row) => row !== query.row && Object.entries(minimum).every(([space, least]) => cosines[space][row] >= least),
    );
    const score = new Float64Array(this.known.rows);
    for (const [space, weight] of Object.entries(weights)) {
      for (const row of rows) score[row] += (weight / this.known.spread[space]) * cosines[space][row];
    }
    const best = Array.from(rows).sort((a, b) => score[b] - score[a]).slice(0, k);
    return Promise.all(best.map(async (row) => ({
      ...(await this.row(row)),
      score: score[row],
      scores: Object.fromEntries(this.known.spaces.map((space) => [space, cosines[space][row]])),
    })));
  }
  async columns(request) {
    const found = this.known.spaces.map(async (space) => [space, await this.search({ ...request, weights: { [space]: 1 } })]);
    return Object.fromEntries(await Promise.all(found));
  }
  async duplicates(space) {
    const { groups } = await json(`data/lists-${this.#place(space)}.json`);
    const shown = groups.slice(0, 200).map((rows) => Promise.all(rows.slice(0, 60).map((row) => this.row(row))));
    return { groups: await Promise.all(shown), sizes: groups.map((rows) => rows.length), found: groups.length };
  }
  async outliers(space) {
    const { outliers } = await json(`data/lists-${this.#place(space)}.json`);
    return Promise.all(outliers.map(async ([row, cosine]) => ({ ...(await this.row(row)), cosine })));
  }
  async paths(rows) { return rows.map((row) => this.known.paths[row]); }

  #place(space) { return this.known.spaces.indexOf(space); }
  async #cosines(space, row) {
    const place = this.#place(space), dim = this.known.dims[place];
    if (!this.#vectors.has(space)) this.#vectors.set(space, array(Int16Array, `data/vectors-${place}.i16`));
    const vectors = await this.#vectors.get(space), found = new Float32Array(this.known.rows);
    for (let other = 0; other < found.length; other++) {
      let sum = 0;
      for (let i = 0; i < dim; i++) sum += vectors[row * dim + i] * vectors[other * dim + i];
      found[other] = sum / (32767 * 32767);
    }
    return found;
  }
}

export const backend = document.documentElement.dataset.backend === 'static' ? new Static() : new Server();
