// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) 2026 The karst authors
// What the page shows, without the page: numbers as text, rows of tables, points of the chart.
// Nothing here touches a document, so node runs it, too (test/observe/figures.test.mjs).

/** Formats a count: 999, 12.3k, 4.56M; "–" if it is not known (null, undefined). */
export function count(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return '–';
  const units = ['', 'k', 'M', 'G', 'T'];
  let unit = 0;
  while (Math.abs(number) >= 999.5 && unit < units.length - 1) {
    number /= 1000;
    unit++;
  }
  if (unit === 0) return number.toFixed(Number.isInteger(number) || number >= 99.95 ? 0 : 1);
  return number.toFixed(number < 9.995 ? 2 : number < 99.95 ? 1 : 0) + units[unit];
}

/** Formats bytes in powers of 1024. */
export function size(number) {
  if (number === null || number === undefined) return '–';
  const units = ['', ' KiB', ' MiB', ' GiB', ' TiB'];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit++;
  }
  return (unit ? number.toFixed(1) : String(number)) + units[unit];
}

/** Formats bytes per second as gigabits per second. */
export function gbps(bytes) {
  return bytes === null || bytes === undefined ? '–' : (bytes * 8 / 1e9).toFixed(3);
}

export function percent(share) {
  return share === null || share === undefined ? '–' : (share * 100).toFixed(1);
}

/** Formats the time that an engine has been up: "3 d 4 h", "4 h 5 min", "5 min 6 s". */
export function duration(ns) {
  const s = Math.floor(ns / 1e9);
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = parts.findIndex(([unit]) => s >= unit);
  if (first < 0) return '0 s';
  return parts.slice(first, first + 2)
    .map(([unit, name], i) => `${Math.floor((i ? s % parts[first][0] : s) / unit)} ${name}`).join(' ');
}

function rate(answer, name) {
  return answer.counters[name] ? answer.counters[name].rate : null;
}

function sum(rows, value) {
  return rows.reduce((all, row) => (value(row) === null || all === null ? null : all + value(row)), 0);
}

/** Makes the figures at the top: [{label, value, unit, bad}]. */
export function tiles(answer) {
  const drops = sum(answer.drops, (row) => row.rate);
  const resent = rate(answer, 'retransmits');
  const timeouts = rate(answer, 'local_ack_timeout_err');
  return [
    {label: 'RoCE in', value: gbps(rate(answer, 'rx_bytes')), unit: 'Gb/s'},
    {label: 'RoCE out', value: gbps(rate(answer, 'tx_bytes')), unit: 'Gb/s'},
    {label: 'packets in', value: count(rate(answer, 'rx_packets')), unit: '/s'},
    {label: 'packets out', value: count(rate(answer, 'tx_packets')), unit: '/s'},
    {label: 'sent again', value: count(resent), unit: '/s', bad: resent > 0},
    {label: 'timeouts', value: count(timeouts), unit: '/s', bad: timeouts > 0},
    {label: 'dropped', value: count(drops), unit: '/s', bad: drops > 0},
    {label: 'queue pairs', value: count(answer.qps.total), unit: ''},
    {label: 'programs', value: count(answer.clients.total), unit: ''},
    {label: 'buffers free', value: count(answer.memory.mbufs_free), unit: `of ${count(answer.memory.mbufs)}`},
  ];
}

// Tables: {head: [word], rows: [{key, cells: [text or {text, kind}]}]}.  The first cell is the name
// of the row.  A kind is a class of page.css: text, wrap, bad, good.

export function ports(answer) {
  return {
    head: ['port', {text: 'device', kind: 'text'}, 'link', 'MTU', 'in Gb/s', 'in pkt/s', 'out Gb/s',
      'out pkt/s', 'missed', 'errors'],
    rows: answer.ports.map((row) => {
      const counts = 'rx_packets' in row;
      const missed = counts ? row.rx_missed + row.rx_no_mbufs : null;
      const errors = counts ? row.rx_errors + row.tx_errors : null;
      return {key: String(row.number), cells: [
        `${row.number} ${row.name}`.trim(), {text: row.device, kind: 'text'},
        {text: row.link, kind: row.link === 'up' ? 'good' : 'bad'}, String(row.mtu),
        gbps(row.rates.rx_bytes), count(row.rates.rx_packets), gbps(row.rates.tx_bytes),
        count(row.rates.tx_packets), {text: count(missed), kind: missed > 0 ? 'bad' : ''},
        {text: count(errors), kind: errors > 0 ? 'bad' : ''}]};
    }),
  };
}

export function lcores(answer) {
  return {
    head: ['lcore', 'QPs', 'frames in/s', 'frames out/s', 'cycles/pkt', 'busy %', 'turns/s', 'sleeps/s',
      'doorbells/s', 'hand-off/s', 'dropped'],
    rows: answer.lcores.map((row) => ({key: String(row.number), cells: [
      String(row.number), count(row.qps), count(row.rates.rx_frames), count(row.rates.tx_frames),
      count(row.cycles_per_packet), row.idle === null ? '–' : percent(1 - row.idle),
      count(row.rates.turns), count(row.rates.sleeps), count(row.rates.doorbells),
      count(row.rates.handoff_in), {text: count(row.tx_dropped), kind: row.tx_dropped > 0 ? 'bad' : ''}]})),
  };
}

export function qps(answer) {
  return {
    head: ['QPN', 'type', 'state', 'program', 'out Gb/s', 'out pkt/s', 'in Gb/s', 'in pkt/s',
      'sent again/s', 'sent again', 'timeouts'],
    rows: answer.qps.rows.map((row) => ({key: String(row.qpn), cells: [
      String(row.qpn), row.type, {text: row.state, kind: row.state === 'ERR' || row.state === 'SQE' ? 'bad' : ''},
      row.client ? String(row.client) : '–', gbps(row.rates.tx_bytes), count(row.rates.tx_packets),
      gbps(row.rates.rx_bytes), count(row.rates.rx_packets), count(row.rates.retransmits),
      count(row.retransmits), {text: count(row.timeouts), kind: row.timeouts > 0 ? 'bad' : ''}]})),
  };
}

export function drops(answer) {
  return {
    head: ['reason', 'now/s', 'in all', {text: 'meaning', kind: 'text'}],
    rows: answer.drops.map((row) => ({key: row.reason, cells: [
      row.reason, {text: count(row.rate), kind: row.rate > 0 ? 'bad' : ''}, count(row.count),
      {text: row.meaning, kind: 'text wrap'}]})),
  };
}

export function clients(answer) {
  return {
    head: ['program', {text: 'name', kind: 'text'}, 'pid', 'QPs', 'CQs', 'regions', 'shared', 'moved', 'copied',
      'rings', 'requests/s', 'refused'],
    rows: answer.clients.rows.map((row) => ({key: String(row.number), cells: [
      String(row.number), {text: row.program || '?', kind: 'text'}, String(row.pid), count(row.qps), count(row.cqs),
      count(row.regions), size(row.shared_bytes), size(row.migrated_bytes), size(row.copied_bytes),
      size(row.ring_bytes), count(row.rates.requests),
      {text: count(row.refused), kind: row.refused > 0 ? 'bad' : ''}]})),
  };
}

export function counters(answer) {
  return {
    head: ['counter', 'now/s', 'in all', {text: 'meaning', kind: 'text'}],
    rows: Object.entries(answer.counters).filter(([, row]) => row.count > 0).map(([name, row]) => ({
      key: name, cells: [name, count(row.rate), count(row.count), {text: row.meaning, kind: 'text wrap'}]})),
  };
}

/** Adds a sample to [{time, in, out}], once, and removes those older than @keep seconds. */
export function remember(history, answer, keep = 120) {
  const last = history[history.length - 1];
  if (answer.seconds !== null && (!last || answer.time > last.time)) {
    history.push({time: answer.time, in: rate(answer, 'rx_bytes'), out: rate(answer, 'tx_bytes')});
  }
  while (history.length && history[0].time < answer.time - keep) history.shift();
  return history;
}

/**
 * Returns the top of the chart: a round number of bits per second, not below any of the history.
 */
export function ceiling(history) {
  const most = Math.max(0, ...history.map((look) => Math.max(look.in, look.out))) * 8;
  if (most <= 0) return 1e6;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most);
}

/**
 * Makes the "points" of a polyline of history[i][what], with the latest sample at the right edge.
 */
export function points(history, what, width, height, top, keep = 120) {
  if (!history.length) return '';
  const now = history[history.length - 1].time;
  return history.map((look) => {
    const x = width - (now - look.time) / keep * width;
    const y = height - look[what] * 8 / top * height;
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  }).join(' ');
}

/** Formats bits per second with a unit. */
export function bits(number) {
  for (const [unit, name] of [[1e9, 'Gb/s'], [1e6, 'Mb/s'], [1e3, 'kb/s']]) {
    if (number >= unit) return `${+(number / unit).toPrecision(3)} ${name}`;
  }
  return `${+number.toPrecision(3)} b/s`;
}
