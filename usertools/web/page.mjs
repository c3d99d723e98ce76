// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) 2026 The karst authors
// Asks karst-exporter each second and fills the page.  Names come from programs and peers: they are set
// as text only, never as markup.
import * as figures from './figures.mjs';

const EVERY_MS = 1000;
const SVG = 'http://www.w3.org/2000/svg';
const at = (id) => document.getElementById(id);

const state = {engine: null, paused: false, history: [], look: null, eventKey: ''};

function cell(tag, what) {
  const element = document.createElement(tag);
  setCell(element, what);
  return element;
}

function setCell(element, what) {
  const {text, kind = ''} = typeof what === 'string' ? {text: what} : what;
  if (element.textContent !== text) element.textContent = text;
  if (element.className !== kind) element.className = kind;
}

/** Keeps rows where possible, so that a selection and the scroll position survive. */
function fill(table, {head, rows}, empty) {
  if (!table.tHead) {
    const row = table.createTHead().insertRow();
    for (const what of head) {
      const th = cell('th', what);
      th.scope = 'col';
      row.append(th);
    }
    table.createTBody();
  }
  const body = table.tBodies[0];
  if (!rows.length) {
    const td = cell('td', {text: empty, kind: 'text'});
    td.colSpan = head.length;
    const row = document.createElement('tr');
    row.append(td);
    body.replaceChildren(row);
    return;
  }
  const before = new Map([...body.rows].filter((row) => row.dataset.key).map((row) => [row.dataset.key, row]));
  const wanted = rows.map(({key, cells}) => {
    let row = before.get(key);
    if (!row) {
      row = document.createElement('tr');
      row.dataset.key = key;
      row.append(...cells.map((what, i) => cell(i ? 'td' : 'th', what)));
      row.firstChild.scope = 'row';
    } else {
      cells.forEach((what, i) => setCell(row.children[i], what));
    }
    return row;
  });
  if (wanted.length !== body.rows.length || wanted.some((row, i) => body.rows[i] !== row)) {
    body.replaceChildren(...wanted);
  }
}

function fillTiles(answer) {
  at('tiles').replaceChildren(...figures.tiles(answer).map(({label, value, unit, bad}) => {
    const tile = document.createElement('div');
    const dd = cell('dd', value + ' ');
    const small = document.createElement('small');
    small.textContent = unit;
    dd.append(small);
    tile.append(cell('dt', label), dd);
    if (bad) tile.className = 'bad';
    return tile;
  }));
}

function fillChart(answer) {
  figures.remember(state.history, answer);
  const top = figures.ceiling(state.history);
  const chart = at('chart');
  const shapes = [0.25, 0.5, 0.75].map((part) => {
    const line = document.createElementNS(SVG, 'line');
    line.setAttribute('class', 'grid');
    line.setAttribute('x2', '600');
    line.setAttribute('y1', String(part * 120));
    line.setAttribute('y2', String(part * 120));
    return line;
  });
  for (const what of ['in', 'out']) {
    const line = document.createElementNS(SVG, 'polyline');
    line.setAttribute('class', what);
    line.setAttribute('points', figures.points(state.history, what, 600, 120, top));
    shapes.push(line);
  }
  chart.replaceChildren(...shapes);
  const last = state.history[state.history.length - 1];
  at('chart-note').textContent = `the last two minutes; the top is ${figures.bits(top)}`;
  chart.setAttribute('aria-label', 'RoCE throughput of the last two minutes; now ' +
    (last ? `${figures.bits(last.in * 8)} in, ${figures.bits(last.out * 8)} out` : 'not known yet'));
}

function fillEvents(answer) {
  const last = answer.events[answer.events.length - 1];
  const key = `${state.engine} ${answer.events.length} ${last ? last.time + last.text : ''}`;
  if (key === state.eventKey) return;
  state.eventKey = key;
  at('events').replaceChildren(...[...answer.events].reverse().map(({time, level, text}) => {
    const item = cell('li', '');
    const when = cell('time', new Date(time * 1000).toLocaleTimeString());
    when.dateTime = new Date(time * 1000).toISOString();
    item.append(when, cell('span', {text: level, kind: 'level'}), cell('span', {text, kind: 'what'}));
    item.className = level;
    return item;
  }));
}

function show(answer) {
  const {engine, memory} = answer;
  document.title = `${engine.name} – karst`;
  at('about').textContent = `${engine.name}, pid ${engine.pid}, up ${figures.duration(engine.uptime_ns)}; ` +
    `${memory.regions} memory regions, ${memory.windows} windows, ${engine.cqs} completion queues`;
  fillTiles(answer);
  fillChart(answer);
  fill(at('ports'), figures.ports(answer), 'no ports');
  fill(at('lcores'), figures.lcores(answer), 'no lcores');
  fill(at('qps'), figures.qps(answer), 'no queue pairs');
  fill(at('drops'), figures.drops(answer), 'nothing was dropped');
  fill(at('clients'), figures.clients(answer), 'no programs are attached');
  fill(at('counters'), figures.counters(answer), 'nothing was counted');
  const hidden = answer.qps.total - answer.qps.rows.length;
  at('qps-note').textContent = hidden > 0 ? `${hidden} more` : '';
  fillEvents(answer);
}

function problem(text) {
  const line = at('problem');
  if (line.textContent !== text) line.textContent = text;
  line.hidden = !text;
}

function status(text) {
  if (at('status').textContent !== text) at('status').textContent = text;
}

async function get(path) {
  const answer = await fetch(path, {cache: 'no-store'});
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error || `status ${answer.status}`);
  return body;
}

function choose(engine) {
  state.engine = engine;
  state.history = [];
  state.look = null;
}

async function findEngines() {
  const {engines} = await get('api/engines');
  const select = at('engine');
  const ids = engines.map(({id}) => id);
  if (ids.join('\n') !== [...select.options].map((option) => option.value).join('\n')) {
    select.replaceChildren(...ids.map((id) => new Option(id, id)));
  }
  if (!ids.includes(state.engine)) choose(ids.length ? ids[0] : null);
  if (state.engine !== null) select.value = state.engine;
}

async function look() {
  if (state.engine === null) await findEngines();
  if (state.engine === null) throw new Error('no engine answers');
  const asked = state.engine;
  const answer = await get(`api/engines/${encodeURIComponent(asked)}?qps=${at('rows').value}&sort=${at('sort').value}`);
  if (asked !== state.engine) return;
  show(answer);
  problem('');
  status(answer.seconds === null ? 'rates come with the next look' : 'live');
}

async function turn() {
  if (!state.paused && !document.hidden) {
    try {
      await look();
    } catch (e) {
      problem(`No figures: ${e.message}.  The last ones stay; this page goes on asking.`);
      status('not live');
      await findEngines().catch(() => {});
    }
  }
  setTimeout(turn, EVERY_MS);
}

at('pause').addEventListener('click', () => {
  state.paused = !state.paused;
  at('pause').setAttribute('aria-pressed', String(state.paused));
  if (state.paused) status('paused');
});
at('engine').addEventListener('change', () => choose(at('engine').value));
turn();
