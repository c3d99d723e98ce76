// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) 2026 The karst authors
// The page's arithmetic (usertools/web/figures.mjs), with known answers: node figures.test.mjs FIGURES
// Exit status 1 and the difference on the standard error if one is wrong.
import assert from 'node:assert/strict';
import {pathToFileURL} from 'node:url';

const f = await import(pathToFileURL(process.argv[2]));

for (const [number, text] of [[0, '0'], [999, '999'], [999.4, '999'], [999.5, '1.00k'], [1000, '1.00k'],
  [12345, '12.3k'], [999499, '999k'], [999600, '1.00M'], [4560000, '4.56M'], [2.5, '2.5'], [1e15, '1000T'],
  [null, '–'], [undefined, '–'], [NaN, '–'], [9.994e3, '9.99k'], [9.996e3, '10.0k']]) {
  assert.equal(f.count(number), text, `count(${number})`);
}
assert.deepEqual([0, 1023, 1024, 1536, 2 ** 20, 67043328, null].map(f.size),
  ['0', '1023', '1.0 KiB', '1.5 KiB', '1.0 MiB', '63.9 MiB', '–']);
assert.deepEqual([125e6, 0, null].map(f.gbps), ['1.000', '0.000', '–']);
assert.deepEqual([0.5e9, 59e9, 61e9, 3661e9, 90061e9, 86400e9].map(f.duration),
  ['0 s', '59 s', '1 min 1 s', '1 h 1 min', '1 d 1 h', '1 d 0 h']);
assert.deepEqual([0.5, 999, 1500, 2e6, 2.5e9].map(f.bits), ['0.5 b/s', '999 b/s', '1.5 kb/s', '2 Mb/s', '2.5 Gb/s']);

// the top of the chart: round, and not below anything
assert.equal(f.ceiling([]), 1e6);
assert.equal(f.ceiling([{in: 0, out: 0}]), 1e6);
assert.equal(f.ceiling([{in: 125e6, out: 1}]), 1e9);
assert.equal(f.ceiling([{in: 126e6, out: 1}, {in: 0, out: 130e6}]), 2e9);
assert.equal(f.ceiling([{in: 0, out: 700e6}]), 1e10);

// the latest look is on the right edge, 0 on the lower one
const history = [{time: 40, in: 0, out: 0}, {time: 100, in: 125e6, out: 62.5e6}];
assert.equal(f.points(history, 'in', 600, 120, 1e9), '300.0,120.0 600.0,0.0');
assert.equal(f.points(history, 'out', 600, 120, 1e9), '300.0,120.0 600.0,60.0');
assert.equal(f.points([], 'in', 600, 120, 1e9), '');

// a look is remembered once, none without rates, and none for ever
const look = (time, seconds) => ({time, seconds, counters: {rx_bytes: {rate: 1}, tx_bytes: {rate: 2}}});
const kept = [];
f.remember(kept, look(10, null));
assert.equal(kept.length, 0);
f.remember(kept, look(11, 1));
f.remember(kept, look(11, 1));
f.remember(kept, look(12, 1));
assert.deepEqual(kept, [{time: 11, in: 1, out: 2}, {time: 12, in: 1, out: 2}]);
f.remember(kept, look(131.5, 1));
assert.deepEqual(kept.map(({time}) => time), [12, 131.5]);

// a port that no driver counts for has no rates; one with errors says so
const table = f.ports({ports: [
  {number: 0, name: 'a', device: 'loopback', link: 'up', mtu: 1, rates: {}},
  {number: 1, name: '', device: 'net', link: 'down', mtu: 1, rx_packets: 5, rx_missed: 1, rx_no_mbufs: 2,
    rx_errors: 0, tx_errors: 0, rates: {rx_bytes: 125e6, rx_packets: 1e4, tx_bytes: null, tx_packets: null}}]});
const [none, some] = table.rows.map(({cells}) => cells.map((what) => (what.text === undefined ? what : what.text)));
assert.deepEqual(none, ['0 a', 'loopback', 'up', '1', '–', '–', '–', '–', '–', '–']);
assert.deepEqual(some, ['1', 'net', 'down', '1', '1.000', '10.0k', '–', '–', '3', '0']);
assert.deepEqual([table.rows[1].cells[2].kind, table.rows[1].cells[8].kind, table.rows[1].cells[9].kind],
  ['bad', 'bad', '']);
for (const row of table.rows) assert.equal(row.cells.length, table.head.length);

// what is wrong is marked, and what is not known is neither 0 nor wrong
const answer = (rate) => ({counters: {retransmits: {rate}, local_ack_timeout_err: {rate}}, drops: [{rate}, {rate}],
  qps: {total: 1}, clients: {total: 2}, memory: {mbufs: 4, mbufs_free: 3}});
const marked = (rate) => f.tiles(answer(rate)).filter(({bad}) => bad).map(({label, value}) => `${label} ${value}`);
assert.deepEqual(marked(2), ['sent again 2', 'timeouts 2', 'dropped 4']);
assert.deepEqual(marked(0), []);
assert.deepEqual(marked(null), []);
assert.equal(f.tiles(answer(null)).find(({label}) => label === 'dropped').value, '–');
