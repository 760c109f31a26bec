// The console: fetches what the daemon tells programs, and shows it.  Names, errors and ids come from
// models and callers: they get into the page as text alone (El, never as markup).
// SPDX-License-Identifier: Apache-2.0
'use strict';

const kEveryMs = 2000, kMostMs = 10000;  // Between two looks.
const kShownMs = 5 * 60 * 1000;            // Of the charts; less after the daemon's start.
const kWindow = 5;                         // Looks that a percentile is made of.
const kStages = [['fetch_us', 'fetch'], ['queue_us', 'queue'], ['decode_us', 'decode'], ['user_us', 'user part'],
  ['embed_us', 'embeddings'], ['dense_us', 'ad part'], ['encode_us', 'encode']];

const byId = (id) => document.getElementById(id);
const kSvg = 'http://www.w3.org/2000/svg';

function Fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
const El = (tag, attributes, ...children) => Fill(document.createElement(tag), attributes, children);
const Svg = (tag, attributes, ...children) => Fill(document.createElementNS(kSvg, tag), attributes, children);

// Puts new children into a section, unless somebody is marking text there.
function Show(id, ...children) {
  const section = byId(id), selection = document.getSelection();
  if (!selection.isCollapsed && section.contains(selection.anchorNode)) return;
  section.replaceChildren(...children.flat());
}

// ---- Numbers for people

function Short(value, digits = 3) {
  if (value === null || !isFinite(value)) return '–';
  const size = Math.abs(value);
  for (const [unit, text] of [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e4, ' k']]) {
    if (size >= unit) return (value / (unit === 1e4 ? 1e3 : unit)).toPrecision(digits) + text;
  }
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : String(Number(value.toPrecision(digits)));
}
function Time(seconds) {
  if (seconds === null || !isFinite(seconds)) return '–';
  if (seconds < 1e-3) return Short(seconds * 1e6) + ' µs';
  return seconds < 1 ? Short(seconds * 1e3) + ' ms' : Short(seconds) + ' s';
}
function Age(seconds) {
  if (!isFinite(seconds)) return '–';
  for (const [unit, text] of [[86400, ' d'], [3600, ' h'], [60, ' min']]) {
    if (seconds >= 2 * unit) return Math.floor(seconds / unit) + text;
  }
  return Math.max(0, Math.floor(seconds)) + ' s';
}
function Bytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; ++unit) bytes /= 1024;
  return `${Number(bytes.toPrecision(3))} ${units[unit]}`;
}
const Clip = (text, most) => [...text].length > most ? [...text].slice(0, most - 1).join('') + '…' : text;
function Percent(share) {
  if (share === null) return '–';
  if (share > 0 && share < 0.001) return '< 0.1 %';
  return Number((100 * share).toFixed(share < 0.1 ? 1 : 0)) + ' %';
}

// ---- What the daemon says

// Prometheus's text: Map of name -> [{labels, value}].
function ParseMetrics(text) {
  const families = new Map();
  for (const line of text.split('\n')) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] || '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => c === 'n' ? '\n' : c);
    }
    if (!families.has(found[1])) families.set(found[1], []);
    const value = found[3] === '+Inf' ? Infinity : Number(found[3]);
    families.get(found[1]).push({labels, value});
  }
  return families;
}

// Calls so far of one version, or of several together.
const NoCalls = () => ({ok: 0, failed: 0, buckets: new Map()});
function AddCalls(from, to) {
  to.ok += from.ok;
  to.failed += from.failed;
  for (const [bound, count] of from.buckets) to.buckets.set(bound, (to.buckets.get(bound) || 0) + count);
}

// One look: counts by version ("" for calls that never had a model), and gauges.
function Sample(metrics) {
  const versions = new Map();
  const of = (labels) => {
    const key = JSON.stringify([labels.model, labels.version]);
    if (!versions.has(key)) versions.set(key, {model: labels.model, version: labels.version, ...NoCalls()});
    return versions.get(key);
  };
  for (const {labels, value} of metrics.get('ulfd_requests_total') || []) {
    of(labels)[labels.code === 'OK' ? 'ok' : 'failed'] += value;
  }
  for (const {labels, value} of metrics.get('ulfd_request_duration_seconds_bucket') || []) {
    of(labels).buckets.set(labels.le === '+Inf' ? Infinity : Number(labels.le), value);
  }
  const gauge = (name) => (metrics.get(name) || [{value: 0}])[0].value;
  return {at: Date.now(), versions, waiting: gauge('ulfd_queue_requests'), in_flight: gauge('ulfd_inflight_requests'),
    busy: gauge('ulfd_workers_busy'), cpu: gauge('process_cpu_seconds_total'),
    memory: gauge('process_resident_memory_bytes')};
}

// A look that the daemon took before the page was open.
function Past(look, bounds, now) {
  const buckets = (counts) => new Map(counts.map((count, i) => [bounds[i] ?? Infinity, count]));
  const versions = new Map(look.versions.map((one) =>
    [JSON.stringify([one.model, one.version]), {...one, buckets: buckets(one.counts)}]));
  return {...look, at: now - look.age_ms, versions};
}

// What came between two looks, of the versions that `wanted` takes.
function Between(before, after, wanted) {
  const calls = NoCalls();
  for (const [key, now] of after.versions) {
    if (!wanted(now)) continue;
    const then = before.versions.get(key) || NoCalls();
    // A version that was unloaded and came back begins at 0.
    const from = now.ok < then.ok || now.failed < then.failed ? NoCalls() : then;
    const difference = {ok: now.ok - from.ok, failed: now.failed - from.failed, buckets: new Map()};
    for (const [bound, count] of now.buckets) difference.buckets.set(bound, count - (from.buckets.get(bound) || 0));
    AddCalls(difference, calls);
  }
  return {...calls, seconds: (after.at - before.at) / 1000};
}

// Of cumulative buckets, in between by a straight line; beyond the last bound: that bound.
function Quantile(buckets, share) {
  const bounds = [...buckets.keys()].sort((a, b) => a - b);
  const all = bounds.length ? buckets.get(bounds[bounds.length - 1]) : 0;
  if (all <= 0) return null;
  let below = 0, low = 0;
  for (const bound of bounds) {
    const count = buckets.get(bound);
    if (count >= share * all) {
      return bound === Infinity ? low : low + (bound - low) * (share * all - below) / Math.max(1, count - below);
    }
    below = count;
    low = bound;
  }
  return low;
}

const state = {samples: [], status: null, plans: [], scope: '', planned: '', open: new Set()};
// Of the last looks together; null before the second one.
function Lately(wanted, looks = kWindow) {
  const samples = state.samples;
  if (samples.length < 2) return null;
  return Between(samples[Math.max(0, samples.length - 1 - looks)], samples[samples.length - 1], wanted);
}
const InScope = (version) => state.scope === '' || version.model === state.scope;

// ---- Charts

// A round number of at least `value`.
function Ceiling(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * [1, 2, 3, 5, 10].find((step) => step * unit >= value * 0.999);
}

// `series`: [{name, colour, points: [[at, value or null]]}]; `format`: of values.
function Chart(id, title, series, format, least) {
  const figure = byId(id), width = Math.max(240, figure.clientWidth - 24), height = 150;
  const left = 46, right = 6, top = 8, bottom = 20, now = Date.now();
  const shown = Math.min(kShownMs, Math.max(60000, now - state.samples[0].at));
  const values = series.flatMap((one) => one.points.map((point) => point[1])).filter((value) => value !== null);
  const most = Ceiling(Math.max(least, ...values));
  const x = (at) => left + (width - left - right) * (1 - (now - at) / shown);
  const y = (value) => top + (height - top - bottom) * (1 - value / most);
  const svg = Svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title});
  for (const share of [0, 0.5, 1]) {
    svg.append(Svg('line', {class: 'grid', x1: left, x2: width - right, y1: y(share * most), y2: y(share * most)}),
      Svg('text', {x: left - 6, y: y(share * most) + 4, 'text-anchor': 'end'}, format(share * most)));
  }
  for (let minutes = Math.min(4, Math.floor(shown / 60000)); minutes >= 0; --minutes) {
    svg.append(Svg('text', {x: x(now - minutes * 60000), y: height - 5, 'text-anchor': minutes === 0 ? 'end' : 'middle'},
      minutes === 0 ? 'now' : `−${minutes} min`));
  }
  series.forEach((one, index) => {
    for (const run of Runs(one.points)) {
      const path = run.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join('L');
      if (index === 0) {
        svg.append(Svg('path', {class: `area c${one.colour}`,
          d: `M${path}L${x(run[run.length - 1][0]).toFixed(1)},${y(0)}L${x(run[0][0]).toFixed(1)},${y(0)}Z`}));
      }
      svg.append(Svg('path', {class: `line c${one.colour}`, d: `M${path}`}));
    }
  });
  const words = (at) => [title, ...series.map((one) => El('span', {}, El('i', {class: `c${one.colour}`}), `${one.name} `,
    format(Nearest(one.points, at))))];
  const caption = El('figcaption', {}, words(now));
  const cursor = Svg('line', {class: 'grid', y1: top, y2: height - bottom, visibility: 'hidden'});
  svg.append(cursor);
  svg.addEventListener('pointermove', (event) => {
    const at = now - shown * (1 - (event.offsetX * width / svg.clientWidth - left) / (width - left - right));
    cursor.setAttribute('visibility', 'visible');
    for (const end of ['x1', 'x2']) cursor.setAttribute(end, x(at));
    caption.replaceChildren(...words(at), El('span', {}, new Date(at).toLocaleTimeString()));
  });
  svg.addEventListener('pointerleave', () => {
    cursor.setAttribute('visibility', 'hidden');
    caption.replaceChildren(...words(now));
  });
  if (!figure.matches(':hover')) figure.replaceChildren(caption, svg);
}
// Points in a row that have values.
function Runs(points) {
  const runs = [];
  let run = [];
  for (const point of points) {
    if (point[1] !== null) run.push(point);
    if (point[1] === null && run.length) run = (runs.push(run), []);
  }
  return run.length ? [...runs, run] : runs;
}
const Nearest = (points, at) => points.length === 0 ? null
  : points.reduce((best, point) => Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best)[1];

function ShowCharts() {
  const samples = state.samples, rate = [[], []], latency = [[], [], []];
  for (let i = 1; i < samples.length; ++i) {
    const at = samples[i].at, step = Between(samples[i - 1], samples[i], InScope);
    rate[0].push([at, step.ok / step.seconds]);
    rate[1].push([at, step.failed / step.seconds]);
    const lately = Between(samples[Math.max(0, i - kWindow)], samples[i], InScope);
    [0.5, 0.95, 0.99].forEach((share, q) => latency[q].push([at, Quantile(lately.buckets, share)]));
  }
  const gauge = (name) => samples.map((sample) => [sample.at, sample[name]]);
  const of = state.scope === '' ? '' : ` of ${Clip(state.scope, 20)}`;
  Chart('rate', `Calls per second${of}`, [{name: 'answered', colour: 0, points: rate[0]},
    {name: 'refused or failed', colour: 1, points: rate[1]}], Short, 1);
  Chart('latency', `Latency${of}`, [{name: 'p50', colour: 0, points: latency[0]}, {name: 'p95', colour: 2, points: latency[1]},
    {name: 'p99', colour: 1, points: latency[2]}], Time, 1e-3);
  Chart('queue', 'Queue', [{name: 'in flight', colour: 0, points: gauge('in_flight')}, {name: 'waiting', colour: 1, points: gauge('waiting')},
    {name: 'busy workers', colour: 3, points: gauge('busy')}], Short, 4);
}

// ---- Sections

function Tile(name, value, bad) {
  return El('div', {class: bad ? 'tile bad' : 'tile'}, El('span', {class: 'muted'}, name), El('b', {}, value));
}

function ShowTiles() {
  const server = state.status.server, now = state.samples[state.samples.length - 1];
  const lately = Lately(InScope), all = lately ? lately.ok + lately.failed : 0;
  const first = state.samples[Math.max(0, state.samples.length - 1 - kWindow)];
  const failed = all > 0 ? lately.failed / all : null;
  Show('tiles',
    Tile('calls / s', lately ? Short(all / lately.seconds) : '–'),
    Tile('refused or failed', Percent(failed), failed > 0.01),
    Tile('p50', Time(lately ? Quantile(lately.buckets, 0.5) : null)),
    Tile('p99', Time(lately ? Quantile(lately.buckets, 0.99) : null)),
    Tile('waiting', [server.queued_requests, El('small', {}, ` of ${Short(Number(server.max_queued_requests))}`)],
      Number(server.queued_requests) > 4 * server.workers),
    Tile('busy workers', `${server.busy_workers} of ${server.workers}`),
    Tile('CPUs used', lately ? Short((now.cpu - first.cpu) / lately.seconds, 2) : '–'),
    Tile('memory', Bytes(now.memory)));
}

function ShowHead(now) {
  const server = state.status.server;
  const [word, style] = server.draining ? ['draining', 'bad'] : server.ready ? ['ready', 'good'] : ['not ready', 'bad'];
  const chip = byId('state');
  chip.textContent = word;
  chip.className = `chip ${style}`;
  byId('where').textContent = location.host;
  byId('build').textContent = `${server.version}, ${server.build}; up ${Age(now - Date.parse(server.started_at) / 1000)}; ` +
    `${state.status.generation} publications`;
}

// Options of a select, by value and text; keeps what is chosen as long as it is there.
function Choices(id, options, chosen) {
  const select = byId(id);
  const same = select.options.length === options.length &&
    options.every(([value, text], i) => select.options[i].value === value && select.options[i].textContent === text);
  if (!same) select.replaceChildren(...options.map(([value, text]) => El('option', {value}, text)));
  const value = options.some((option) => option[0] === chosen) ? chosen : options.length ? options[0][0] : '';
  select.value = value;
  return value;
}

function Notes(key, title, lines) {
  if (lines.length === 0) return null;
  const details = El('details', {}, El('summary', {}, title), El('ul', {}, lines.map((line) => El('li', {}, line))));
  details.open = state.open.has(key);
  details.addEventListener('toggle', () => details.open ? state.open.add(key) : state.open.delete(key));
  return details;
}

const Fact = (name, value) => El('div', {}, El('dt', {}, name), El('dd', {}, value));

function Version(model, version, now) {
  const word = version.state.replace('VERSION_STATE_', '').toLowerCase();
  const style = {serving: 'good', failed: 'bad', loading: 'busy'}[word] || '';
  const lately = Lately((one) => one.model === model.name && one.version === version.version);
  const all = lately ? lately.ok + lately.failed : 0;
  const facts = [];
  if (version.serving) {
    facts.push(Fact('calls / s', lately ? Short(all / lately.seconds) : '–'),
      Fact('p50', Time(lately ? Quantile(lately.buckets, 0.5) : null)),
      Fact('p99', Time(lately ? Quantile(lately.buckets, 0.99) : null)),
      Fact('failed', all > 0 ? Percent(lately.failed / all) : '–'),
      Fact('memory', Bytes(Number(version.memory_bytes))),
      Fact(`publication ${version.generation}`, Age(now - Date.parse(version.published_at) / 1000) + ' ago'));
    if (Number(version.epoch) > 0) {
      facts.push(Fact('epoch', version.epoch), Fact('tables true up to', Age(now - Date.parse(version.event_time) / 1000) + ' ago'));
    }
  }
  return El('div', {class: 'version'},
    El('div', {class: 'line'}, El('b', {}, `v${version.version}`), El('span', {class: `chip ${style}`}, word),
      version.serving && word !== 'serving' ? El('span', {class: 'chip good'}, 'the content before serves') : null,
      version.quarantine ? El('span', {class: 'chip bad'}, 'quarantine') : null,
      version.labels.map((label) => El('span', {class: 'chip label'}, label))),
    version.error ? El('div', {class: style === 'bad' || version.quarantine ? 'error' : 'muted'}, version.error) : null,
    version.quarantine && version.quarantine.reason !== version.error ? El('div', {class: 'error'}, version.quarantine.reason) : null,
    facts.length ? El('dl', {}, facts) : null,
    Notes(`${model.name}/${version.version}`, `${version.notices.length} notices`, version.notices));
}

function Share(share) {
  const what = share.kind.replace('KIND_', '').toLowerCase();
  const by = share.metadata ? `, by the metadata key ${share.metadata}` : share.feature ? `, by the feature ${share.feature}` : '';
  return El('p', {class: 'line'}, El('span', {class: 'chip label'}, what), `${Percent(share.share)} of the calls to ${share.label}${by}`);
}

function ShowModels(now) {
  const models = state.status.models;
  if (models.length === 0) return Show('models', El('p', {class: 'none'}, 'No model yet.'));
  Show('models', models.map((model) => El('article', {class: 'card'},
    El('header', {}, El('h3', {}, model.name)),
    model.error ? El('div', {class: 'error'}, model.error) : null,
    state.status.traffic_shares.filter((share) => share.model === model.name).map(Share),
    model.versions.map((version) => Version(model, version, now)).reverse())));
}

function ShowSlow() {
  const calls = state.status.slowest_calls.slice(0, 10);
  Show('legend', kStages.map(([, name], i) => El('span', {}, El('i', {class: `s${i}`}), name)));
  if (calls.length === 0) return Show('slow', El('p', {class: 'none'}, 'No calls.'));
  const longest = Math.max(...calls.map((call) => Number(call.timings.total_us)));
  Show('slow', El('div', {class: 'rows'}, calls.map((call) => {
    const total = Number(call.timings.total_us);
    const stages = kStages.map(([field, name], i) => [Number(call.timings[field]), name, i]).filter((stage) => stage[0] > 0);
    const bar = El('div', {class: 'bar', title: stages.map(([us, name]) => `${name} ${Time(us / 1e6)}`).join(', ')},
      stages.map(([us, , i]) => {
        const part = El('span', {class: `s${i}`});
        part.style.width = `${100 * us / longest}%`;
        return part;
      }));
    return El('div', {},
      El('div', {class: 'line'}, El('b', {}, Time(total / 1e6)), call.model ? `${call.model} v${call.version}` : 'no model',
        El('span', {class: `chip ${call.code === 'OK' ? 'good' : 'bad'}`}, call.code),
        El('span', {class: 'muted'}, `${call.ads} ads, ${Short(Number(call.input_values))} values, ` +
          new Date(call.ended_at).toLocaleTimeString())),
      stages.length ? bar : null,
      El('div', {class: 'muted'}, stages.map(([us, name]) => `${name} ${Time(us / 1e6)}`).join(', '),
        call.request_id ? [', request ', El('code', {}, call.request_id)] : null,
        call.trace_id ? [', trace ', El('code', {}, call.trace_id)] : null));
  })));
}

function ShowEvents() {
  const events = state.status.recent_events;
  if (events.length === 0) return Show('events', El('p', {class: 'none'}, 'Nothing was loaded yet.'));
  Show('events', El('div', {class: 'rows'}, events.map((event) => {
    const word = event.kind.replace('KIND_', '').toLowerCase();
    return El('div', {},
      El('div', {class: 'line'}, El('span', {class: 'muted'}, new Date(event.at).toLocaleString()),
        El('span', {class: `chip ${{published: 'good', refused: 'bad'}[word] || ''}`}, word), El('b', {}, `${event.model} v${event.version}`),
        word === 'published' ? `in ${Time(parseFloat(event.took))}` : null,
        event.reason ? El('span', {class: 'muted'}, event.reason) : null),
      event.error ? El('div', {class: 'error'}, event.error) : null);
  })));
}

// ---- The plan as a picture

const kParts = {user: 'user part: once per request', ad: 'ad part: of every ad alone', joint: 'joint part: of every ad and the user'};
const kNode = {width: 172, height: 54, gapX: 18, gapY: 34};

// Nodes and edges: the steps, and for each the inputs of the graph that it reads as one node.
function Graph(entry) {
  const {steps, values} = entry.plan, us = entry.timed ? entry.timed.us : null;
  const sum = us ? Math.max(1e-9, us.reduce((a, b) => a + b, 0)) : 0;
  const nodes = [], edges = [], makers = new Map();
  steps.forEach((step, s) => {
    const inputs = step.inputs.filter((id) => values[id].kind === 'input');
    const froms = new Set(step.inputs.filter((id) => makers.has(id)).map((id) => makers.get(id)));
    if (inputs.length > 0) {
      const names = [...new Set(inputs.map((id) => values[id].name.replace(/\.(ids|values|segments)$/, '')))];
      const levels = inputs.map((id) => values[id].level);
      const part = levels.includes('unknown') ? 'joint' : levels.includes('ad') ? 'ad' : 'user';
      const many = names.length > 2, list = names.join(', ');
      froms.add(nodes.push({name: many ? `${names.length} inputs` : list, small: many ? list : 'input', time: '', user: part === 'user',
        style: `input ${part}`, tip: list}) - 1);
    }
    const shape = step.outputs.length ? values[step.outputs[0]].shape : '';
    const node = nodes.push({name: step.name || `step ${s}`, user: step.part === 'user', share: us ? us[s] / sum : 0,
      small: `${step.type.replace(/_layer$/, '')} ${shape}`,
      time: us && !step.view ? `${Time(us[s] / 1e6)}, ${Percent(us[s] / sum)}` : step.view ? '' : `${Short(step.cost.flops.total)} FLOPs`,
      style: (step.level === 'unknown' ? 'unknown' : step.part) + (step.view ? ' view' : ''),
      tip: `step ${s}: ${step.name} (${step.type}) ${shape}\n${Short(step.cost.flops.total)} FLOPs, ` +
        `${Bytes(step.cost.bytes.total)} at ${entry.ads} ads; layers ${step.layers.join(', ')}`}) - 1;
    froms.forEach((from) => edges.push([from, node]));
    step.outputs.forEach((id) => makers.set(id, node));
  });
  return {nodes, edges};
}

// Rows from above to below: the user part, then the others; sources as low as their readers let them.
function Rank(nodes, edges) {
  for (const node of nodes) node.rank = 0;
  const lower = (part) => {  // Edges are in the order in which steps run.
    for (const [from, to] of edges) {
      if (part(nodes[to])) nodes[to].rank = Math.max(nodes[to].rank, nodes[from].rank + 1);
    }
  };
  lower((node) => node.user);
  const users = nodes.filter((node) => node.user);
  const cut = users.length ? 1 + Math.max(...users.map((node) => node.rank)) : 0;
  for (const node of nodes) if (!node.user) node.rank = cut;
  lower((node) => !node.user);
  nodes.forEach((node, index) => {
    const readers = edges.filter(([from]) => from === index).map(([, to]) => nodes[to].rank);
    const source = !edges.some(([, to]) => to === index);
    if (source && readers.length) node.rank = Math.min(Math.min(...readers) - 1, node.user ? cut - 1 : Infinity);
  });
  return cut;
}

// Longer edges get a place in each row that they pass, and rows the order of their neighbours.
function Arrange(nodes, edges) {
  const rows = [], links = [];
  const place = (node) => (rows[node.rank] = rows[node.rank] || []).push(node);
  nodes.forEach(place);
  for (const edge of edges) {
    const [from, to] = edge;
    let last = nodes[from];
    const path = edge.path = [last];
    for (let rank = last.rank + 1; rank < nodes[to].rank; ++rank) {
      const bend = {rank, bend: true};
      place(bend);
      links.push([last, bend]);
      path.push(last = bend);
    }
    links.push([last, nodes[to]]);
    path.push(nodes[to]);
  }
  const wide = (node) => node.bend ? 14 : kNode.width;
  const near = new Map();
  for (const [a, b] of links) for (const [one, other] of [[a, b], [b, a]]) near.set(one, [...(near.get(one) || []), other]);
  const spread = (row) => {
    let at = 0;
    for (const node of row) {
      node.x = at + wide(node) / 2;
      at += wide(node) + kNode.gapX;
    }
    for (const node of row) node.x -= (at - kNode.gapX) / 2;
  };
  rows.forEach(spread);
  for (let sweep = 0; sweep < 8; ++sweep) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      const want = new Map(row.map((node) => {
        const others = (near.get(node) || []).filter((other) => down ? other.rank < node.rank : other.rank > node.rank);
        return [node, others.length ? others.reduce((sum, other) => sum + other.x, 0) / others.length : node.x];
      }));
      row.sort((a, b) => want.get(a) - want.get(b));
      spread(row);
      // The whole row goes to where its nodes want to be.
      const shift = row.reduce((sum, node) => sum + want.get(node) - node.x, 0) / row.length;
      for (const node of row) node.x += shift;
    }
  }
  return rows;
}

function Picture(entry) {
  const {nodes, edges} = Graph(entry), cut = Rank(nodes, edges), rows = Arrange(nodes, edges);
  const all = rows.flat(), step = kNode.height + kNode.gapY, both = cut > 0 && cut < rows.length;
  const leftmost = Math.min(...all.map((node) => node.x)) - kNode.width / 2 - 8;
  const width = Math.max(...all.map((node) => node.x)) + kNode.width / 2 + 8 - leftmost;
  const height = rows.length * step + (both ? 40 : 0);
  for (const node of all) node.y = 8 + node.rank * step + (both && node.rank >= cut ? 40 : 0);
  const svg = Svg('svg', {width, height, viewBox: `${leftmost} 0 ${width} ${height}`});
  for (const edge of edges) {
    let d = '';
    for (let i = 1; i < edge.path.length; ++i) {
      const [a, b] = [edge.path[i - 1], edge.path[i]], from = a.y + (a.bend ? kNode.height / 2 : kNode.height);
      const to = b.bend ? b.y + kNode.height / 2 : b.y, middle = (from + to) / 2;
      d += `${d ? '' : `M${a.x},${from}`}C${a.x},${middle} ${b.x},${middle} ${b.x},${to}`;
    }
    svg.append(Svg('path', {class: nodes[edge[0]].user !== nodes[edge[1]].user ? 'edge crossing' : 'edge', d}));
  }
  for (const node of nodes) {
    const x = node.x - kNode.width / 2;
    svg.append(Svg('g', {class: `node ${node.style}`}, Svg('title', {}, node.tip),
      Svg('rect', {x, y: node.y, width: kNode.width, height: kNode.height, rx: 6}),
      Svg('text', {class: 'name', x: x + 8, y: node.y + 16}, Clip(node.name, 24)),
      Svg('text', {class: 'small', x: x + 8, y: node.y + 30}, Clip(node.small, 27)),
      Svg('text', {class: 'small', x: x + 8, y: node.y + 44}, node.time),
      node.share > 0 ? Svg('rect', {class: 'hot', x, y: node.y + kNode.height - 4, width: Math.max(2, kNode.width * node.share),
        height: 4, rx: 2}) : null));
  }
  if (both) {
    const y = 8 + cut * step + 4, title = (part) => `${kParts[part]}, ${Short(entry.plan.parts[part].flops.total)} FLOPs`;
    svg.append(Svg('line', {class: 'cutline', x1: leftmost, x2: leftmost + width, y1: y, y2: y}),
      Svg('text', {class: 'cuttext', x: leftmost + 8, y: y - 6}, title('user')),
      Svg('text', {class: 'cuttext', x: leftmost + 8, y: y + 16}, `${title('ad')}; ${title('joint')}`));
  }
  return svg;
}

// The same as a list, which a phone can show.
function StepList(entry) {
  const {steps, values} = entry.plan, us = entry.timed ? entry.timed.us : null;
  const sum = us ? Math.max(1e-9, us.reduce((a, b) => a + b, 0)) : 0;
  const rows = steps.map((step, s) => {
    const bar = El('span', {});
    bar.style.width = us ? `${100 * us[s] / sum}%` : '0';
    const shape = step.outputs.length ? ` ${values[step.outputs[0]].shape}` : '';
    return El('div', {class: 'step'}, El('span', {class: step.part[0], title: kParts[step.part]}, s),
      El('span', {}, El('b', {}, step.name || `step ${s}`), El('span', {class: 'muted'}, ` ${step.type.replace(/_layer$/, '')}${shape}`)),
      El('span', {class: 'took'}, step.view ? 'view' : us ? `${Time(us[s] / 1e6)}, ${Percent(us[s] / sum)}` : `${Short(step.cost.flops.total)} FLOPs`),
      us && !step.view ? El('div', {class: 'bar'}, bar) : null);
  });
  const cut = steps.findIndex((step) => step.part !== 'user');
  if (cut > 0) rows.splice(cut, 0, El('div', {class: 'cut'}, `cut: ${entry.plan.crossing.length} tensors are kept for the ad and joint parts`));
  return El('div', {class: 'rows'}, rows);
}

function ShowPlan() {
  const name = (entry) => `${entry.model} v${entry.version}`;
  state.planned = Choices('planned', state.plans.map((entry) => [name(entry), name(entry)]), state.planned);
  const entry = state.plans.find((one) => name(one) === state.planned);
  byId('timed').textContent = '';
  if (!entry) return Show('picture', El('p', {class: 'none'}, 'Nothing serves.')), Show('steps');
  byId('timed').textContent = entry.timed
    ? `Means of runs with ${Short(entry.timed.ads)} ads, one timed in a second (${entry.timed.calls} so far).`
    : `No call was timed yet; costs are for ${entry.ads} ads.`;
  const at = [byId('picture').scrollLeft, byId('picture').scrollTop];
  Show('picture', Picture(entry));
  byId('picture').scrollTo(...at);
  Show('steps', StepList(entry));
}

// ---- The loop

async function Fetch(path, accept) {
  const reply = await fetch(path, {headers: {Accept: accept}, signal: AbortSignal.timeout(10000)});
  if (!reply.ok) throw new Error(`${path}: HTTP ${reply.status}`);
  return accept === 'text/plain' ? reply.text() : reply.json();
}

function ShowAll() {
  const server = state.status.server, now = Date.parse(server.started_at) / 1000 + parseFloat(server.uptime);
  state.scope = Choices('scope', [['', 'all models'], ...state.status.models.map((model) => [model.name, model.name])], state.scope);
  ShowHead(now);
  ShowTiles();
  ShowCharts();
  ShowModels(now);
  ShowSlow();
  ShowEvents();
}

async function Look(count) {
  const begin = Date.now(), alarm = byId('alarm');
  let found = null;
  try {
    found = await Promise.all([Fetch('statusz', 'application/json'), Fetch('metrics', 'text/plain'),
      count % 5 === 0 ? Fetch('plans.json', 'application/json') : null,
      count === 0 ? Fetch('history.json', 'application/json') : null]);
  } catch (error) {
    if (alarm.hidden) alarm.textContent = `No answer since ${new Date().toLocaleTimeString()}: ${error.message}`;
  }
  alarm.hidden = found !== null;
  // What is dear to the daemon is asked for less often.
  const pause = document.hidden ? kMostMs
    : Math.min(kMostMs, Math.max(kEveryMs, 4 * (Date.now() - begin)));
  setTimeout(Look, pause, found ? count + 1 : count);
  if (found === null) return;
  const [status, metrics, plans, history] = found;
  state.status = status;
  if (history !== null) state.samples = history.looks.map((look) => Past(look, history.bounds, begin));
  state.samples = state.samples.filter((sample) => begin - sample.at < kShownMs);
  state.samples.push(Sample(ParseMetrics(metrics)));
  ShowAll();
  if (plans === null) return;
  state.plans = plans.filter((one) => one.plan !== null);
  ShowPlan();
}

byId('scope').addEventListener('change', (event) => {
  state.scope = event.target.value;
  ShowAll();
});
byId('planned').addEventListener('change', (event) => {
  state.planned = event.target.value;
  ShowPlan();
});
Look(0);
