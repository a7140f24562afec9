// The weight of each space, and the least cosine in it.
import { showMix } from './results.js';
import { $, about, change, view } from './state.js';

export function makeSliders() {
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

export function showSliders() {
  for (const input of $('sliders').querySelectorAll('input')) {
    const { space } = input.dataset;
    if (input.type === 'range') {
      input.value = view.weights[space];
      input.closest('.slider').querySelector('output').textContent = view.weights[space].toFixed(2);
    } else if (document.activeElement !== input) input.value = view.minimum[space] ?? '';
  }
}
