// One scatter plot for each space. All of them show the same points, and what happens in one happens in all.
import { createRenderer, createScatterplot } from './regl-scatterplot.js';
import { simplified } from './view.js';

const GRAY = { light: '#8b939c', dark: '#8b939c' };
const HUES = 20;
const BANDS = 256;

function palette(theme) {
  const hex = (x) => Math.round(255 * x).toString(16).padStart(2, '0');
  return Array.from({ length: HUES }, (_, i) => {
    // Neighbouring classes get distant hues; every other turn is lighter.
    const hue = (i * 137.508) % 360, light = (theme === 'dark' ? 0.62 : 0.46) + (i % 2 ? 0.08 : -0.04);
    const a = 0.6 * Math.min(light, 1 - light);
    const channel = (n) => {
      const k = (n + hue / 30) % 12;
      return hex(light - a * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
    };
    return `#${channel(0)}${channel(8)}${channel(4)}`;
  });
}

/** Whether a point is inside a polygon, as a function of x and y. Each point is compared with the edges at its height. */
export function insideOf(polygon) {
  const heights = polygon.map(([, y]) => y), low = Math.min(...heights), high = Math.max(...heights);
  if (!(high > low)) return () => false;
  const edges = Array.from({ length: BANDS }, () => []);
  const band = (y) => Math.min(BANDS - 1, Math.floor(((y - low) / (high - low)) * BANDS));
  polygon.forEach(([x, y], i) => {
    const [x0, y0] = polygon.at(i - 1);
    for (let at = band(Math.min(y, y0)); at <= band(Math.max(y, y0)); at++) edges[at].push([x, y, x0, y0]);
  });
  return (x, y) => {
    if (y < low || y > high) return false;
    let odd = false;
    for (const [x1, y1, x0, y0] of edges[band(y)]) {
      if (y1 > y !== y0 > y && x < ((x0 - x1) * (y - y1)) / (y0 - y1) + x1) odd = !odd;
    }
    return odd;
  };
}

export class Maps {
  plots = new Map();
  #points = new Map();
  #shown = null; // points that the filter leaves, or null
  #hovered = -1;
  #chosen = -1;

  /** `on` has the functions over(point, space), out(), click(point) and lasso(space, polygon). */
  constructor(parent, spaces, on) {
    this.on = on;
    this.renderer = createRenderer();
    for (const space of spaces) {
      const map = parent.appendChild(document.createElement('div'));
      map.className = 'map';
      map.innerHTML = '<h2></h2><div class="plot"><canvas></canvas><span class="ring" hidden></span></div>';
      map.querySelector('h2').textContent = space;
      const canvas = map.querySelector('canvas');
      canvas.setAttribute('role', 'img');
      canvas.setAttribute('aria-label', `Map of ${space}`);
      canvas.dataset.space = space;
      const plot = createScatterplot({
        canvas, renderer: this.renderer, deselectOnEscape: false, deselectOnDblClick: false, lassoMinDelay: 8,
        actionKeyMap: { lasso: 'shift' }, opacity: 0.85, pointSizeSelected: 5, pointOutlineWidth: 2,
      });
      this.plots.set(space, plot);
      canvas.scatterplot = plot; // for the browser's console, and for tests
      this.#listen(space, plot, canvas);
    }
  }

  #listen(space, plot, canvas) {
    let drawing = false;
    plot.subscribe('drawing', () => this.#encircle(space)); // also after zooming, and when the window changes
    plot.subscribe('pointOver', (point) => this.on.over(point, space));
    plot.subscribe('pointOut', () => this.on.out());
    canvas.addEventListener('mouseleave', () => this.on.out());
    plot.subscribe('lassoStart', () => { drawing = true; });
    plot.subscribe('select', ({ points }) => { if (!drawing && points.length === 1) this.on.click(points[0]); });
    plot.subscribe('lassoEnd', ({ coordinates }) => {
      drawing = false;
      if (coordinates.length > 2) this.on.lasso(space, coordinates.map(([x, y]) => [x, y]));
    });
  }

  async draw(load, classes, theme) {
    const some = new Set(classes).size > 1;
    const size = classes.length < 2000 ? 6 : classes.length < 20000 ? 4 : 2;
    for (const [space, plot] of this.plots) {
      const xy = await load(space), n = xy.length / 2;
      this.#points.set(space, xy);
      plot.set({ pointSize: size, ...(some ? { colorBy: 'valueA' } : {}) });
      const x = new Float32Array(n), y = new Float32Array(n), valueA = new Float32Array(n);
      for (let i = 0; i < n; i++) {
        // A margin, so that no point lies on the border.
        x[i] = xy[2 * i] *= 0.95;
        y[i] = xy[2 * i + 1] *= 0.95;
        valueA[i] = classes[i] < 0 ? HUES : classes[i] % HUES;
      }
      this.#paint(plot, theme, some);
      await plot.draw({ x, y, valueA }, { zDataType: 'categorical' });
    }
    this.colored = some;
  }

  #paint(plot, theme, some) {
    const gray = GRAY[theme], dark = theme === 'dark';
    plot.set({
      backgroundColor: dark ? '#1e2125' : '#ffffff',
      pointColor: some ? [...palette(theme), gray] : [gray],
      pointColorActive: dark ? '#ffa062' : '#c2410c',
      pointColorHover: dark ? '#ffffff' : '#000000',
      lassoColor: dark ? '#ffa062' : '#c2410c',
    });
  }

  theme(theme) { for (const plot of this.plots.values()) this.#paint(plot, theme, this.colored); }
  mode(lasso) { for (const plot of this.plots.values()) plot.set({ mouseMode: lasso ? 'lasso' : 'panZoom' }); }

  hover(point) {
    if (point === this.#hovered) return;
    this.#hovered = point;
    for (const plot of this.plots.values()) plot.hover(point, { preventEvent: true });
  }

  /** Marks points, and draws a ring around the chosen one (-1 for none), in all maps. */
  select(points, chosen = -1) {
    this.#chosen = chosen;
    const marked = [...new Set(chosen < 0 ? points : [...points, chosen])];
    for (const [space, plot] of this.plots) {
      if (marked.length) plot.select([...marked], { preventEvent: true });
      else plot.deselect({ preventEvent: true });
      this.#encircle(space);
    }
  }

  #encircle(space) {
    const plot = this.plots.get(space), ring = plot.get('canvas').parentElement.querySelector('.ring');
    const shown = this.#chosen >= 0 && (this.#shown === null || this.#shown.has(this.#chosen));
    const place = shown && plot.getScreenPosition(this.#chosen);
    ring.hidden = !place;
    if (place) [ring.style.left, ring.style.top] = place.map((x) => `${x}px`);
  }

  async filter(points) {
    this.#shown = points === null ? null : new Set(points);
    for (const plot of this.plots.values()) {
      if (points === null) await plot.unfilter({ preventEvent: true });
      else await plot.filter(points, { preventEvent: true });
    }
  }

  /** Points of a space inside a polygon, of those that are shown. */
  within(space, polygon) {
    return this.#inside(space, polygon).filter((point) => this.#shown === null || this.#shown.has(point));
  }

  /** A simpler polygon with the same points inside, under any filter. */
  simplified(space, polygon) {
    const found = this.#inside(space, polygon);
    return simplified(polygon, (other) => {
      const others = this.#inside(space, other);
      return others.length === found.length && others.every((point, i) => point === found[i]);
    });
  }

  #inside(space, polygon) {
    const xy = this.#points.get(space), inside = insideOf(polygon), found = [];
    for (let i = 0; i < xy.length / 2; i++) if (inside(xy[2 * i], xy[2 * i + 1])) found.push(i);
    return found;
  }

  /** Where a point is in the window. */
  place(space, point) {
    const plot = this.plots.get(space), box = plot.get('canvas').getBoundingClientRect();
    const [x, y] = plot.getScreenPosition(point);
    return [box.left + x, box.top + y];
  }
}
