// Client of ulfd: deadlines, retries that obey the server's pushback, hedged calls, replicas that
// are followed by their health, one user at one replica, users by key.  index.d.ts describes it.
// SPDX-License-Identifier: Apache-2.0
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const PUSHBACK = 'grpc-retry-pushback-ms';
const FREE_CALLS = 4; // So many calls at once are no load worth leaving the user's replica for.
const MOST_MS = 2 ** 31 - 1; // What timers can hold.

// The package has copies of the protos; in the repository they have a folder of their own.
const packed = path.join(__dirname, 'proto');
const protos = fs.existsSync(packed) ? packed : path.join(__dirname, '..', '..', '..', 'proto');
const api = grpc.loadPackageDefinition(loader.loadSync(
  ['predict.proto', 'health.proto'].map((file) => path.join(protos, file)),
  { longs: Number, enums: String, defaults: true, arrays: true }));

const sha256 = (text) => crypto.createHash('sha256').update(text).digest('hex');
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// What would be taken for another value without a word is an error: each of these gives the value,
// or throws.
const wants = (what, value, wanted) => {
  const shown = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return new TypeError(`${what}: ${shown}, want ${wanted}`);
};

const text = (value, what) => {
  if (typeof value !== 'string') throw wants(what, value, 'text');
  return value;
};

const texts = (values, what) => {
  if (!Array.isArray(values)) throw wants(what, values, 'an array of texts');
  return values.map((value) => text(value, what));
};

const oneOf = (...choices) => (value, what) => {
  if (!choices.includes(value)) throw wants(what, value, choices.filter(Boolean).join(', '));
  return value;
};

const number = (above, most) => (value, what) => {
  if (typeof value !== 'number' || !(value > above && value <= most)) {
    throw wants(what, value, `a number above ${above} and at most ${most}`);
  }
  return value;
};

const whole = (least, most) => (value, what) => {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    throw wants(what, value, `an integer of ${least} to ${most}`);
  }
  return value;
};

const boolean = (value, what) => {
  if (typeof value !== 'boolean') throw wants(what, value, 'true or false');
  return value;
};

const object = (value, what) => {
  if (typeof value !== 'object' || value === null) throw wants(what, value, 'an object');
  return value;
};

const integers = (bits) => (values, what) => Array.from(values, (value) => {
  const rounded = typeof value === 'number' && !Number.isSafeInteger(value);
  if (rounded || !/^-?[0-9]+$/.test(value) || BigInt.asIntN(bits, BigInt(value)) !== BigInt(value)) {
    throw new TypeError(`${what}: ${value}, want ${bits}-bit integers` +
      (bits === 64 ? ' (above 2^53 as text or bigint)' : ''));
  }
  return String(value);
});

const floats = (values, what) => Array.from(values, (value) => {
  if (typeof value !== 'number') throw new TypeError(`${what}: ${value}, want numbers`);
  if (Number.isFinite(value) && !Number.isFinite(Math.fround(value))) {
    throw new TypeError(`${what}: ${value}, want 32-bit floats`);
  }
  return value;
});

// The fields of `given` that are there, each as `schema` makes it.
function take(schema, given, prefix = '') {
  return Object.fromEntries(Object.entries(given)
    .filter(([, value]) => value !== undefined)
    .map(([field, value]) => {
      if (!Object.hasOwn(schema, field)) throw new TypeError(`${prefix}${field}: unknown`);
      return [field, schema[field](value, prefix + field)];
    }));
}

const SPARSE = { ids: integers(64), values: floats, counts: integers(32) };
const DENSE = { floats, int32s: integers(32), int64s: integers(64), shape: integers(64) };

function features(all, what) {
  return Object.entries(object(all, what)).map(([name, value]) => {
    const content = take({ ...SPARSE, ...DENSE }, object(value, name), `${name}.`);
    const has = (field) => content[field] !== undefined;
    const kinds = ['ids', 'floats', 'int32s', 'int64s'].filter(has);
    if (kinds.length !== 1) {
      throw new TypeError(
        `${name}: ${kinds.join(' and ') || 'nothing'}, want one of ids, floats, int32s, int64s`);
    }
    const schema = has('ids') ? SPARSE : DENSE;
    const stray = Object.keys(content).find((field) => schema[field] === undefined);
    if (stray) throw new TypeError(`${name}.${stray}: not with ${kinds[0]}`);
    return has('ids') ? { name, sparse: content } : { name, dense: content };
  });
}

const TOP_K = { k: whole(1, 2 ** 31 - 1), output: text, column: whole(-(2 ** 31), 2 ** 31 - 1) };

const REQUEST = {
  user: features,
  ads: features,
  outputs: texts,
  version: whole(1, Number.MAX_SAFE_INTEGER),
  label: text,
  requestId: text,
  topK: (value, what) => (typeof value === 'number'
    ? { k: TOP_K.k(value, what) } : take(TOP_K, object(value, what), `${what}.`)),
  returnTimings: boolean,
  userKey: text,
  userVersion: whole(1, Number.MAX_SAFE_INTEGER),
  userId: text,
  priority: oneOf('', 'high', 'normal', 'low'),
  timeoutMs: number(0, MOST_MS),
};

const OPTIONS = {
  credentials: object,
  token: (value, what) => {
    if (!/^[ -~]*$/.test(text(value, what))) throw new TypeError(`${what}: want printable ASCII`);
    return value;
  },
  userHashKey: (value, what) => {
    if (/^[a-z0-9_.-]+$/.test(text(value, what))) return value;
    throw wants(what, value, 'lower-case letters, digits, - _ .');
  },
  healthService: text,
  timeoutMs: number(0, MOST_MS),
  attempts: whole(1, 100),
  attemptTimeoutMs: number(0, MOST_MS),
  hedgeAfterMs: (value, what) => (value === 'p95' ? value : number(0, MOST_MS)(value, what)),
  hedgeShare: number(0, 1),
  loadFactor: number(1, Infinity),
};

class Replica {
  constructor(target, credentials, service, metadata) {
    this.target = target;
    this.client = new api.ulfd.v1.PredictionService(target, credentials);
    // One connection for both.
    this.health = new api.grpc.health.v1.Health(target, credentials,
      { channelOverride: this.client.getChannel() });
    this.service = service;
    this.metadata = metadata;
    this.serving = true; // Until somebody says otherwise.  undefined: nobody says anything.
    this.calls = 0; // Under way.
    this.follow();
  }

  follow() {
    const again = (serving) => {
      this.serving = serving;
      clearTimeout(this.timer);
      if (!this.closed) this.timer = setTimeout(() => this.follow(), 500);
    };
    this.watch = this.health.Watch({ service: this.service }, this.metadata);
    this.watch.on('data', ({ status }) => { this.serving = status === 'SERVING'; });
    this.watch.on('end', () => again(undefined));
    // A proxy without the health service may answer calls all the same.
    this.watch.on('error', ({ code }) => again(code === grpc.status.UNIMPLEMENTED || undefined));
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.watch.cancel();
    this.client.close();
  }

  start(request, metadata, deadline) {
    let call;
    this.calls += 1;
    const done = new Promise((resolve) => {
      call = this.client.Predict(request, metadata, { deadline }, (error, reply) => {
        this.calls -= 1;
        resolve({ error, reply });
      });
    });
    return { done, cancel: () => call.cancel() };
  }
}

// When a call is sent to a second replica, too: after a time, and to a share of the calls.
class Hedges {
  constructor(afterMs, share) {
    Object.assign(this, { afterMs, share, saved: 1, times: new Map() });
  }

  // Milliseconds, or undefined: never.  Once a call.
  wait(model) {
    this.saved = Math.min(10, this.saved + this.share);
    if (this.afterMs !== 'p95') return this.afterMs;
    const times = [...this.times.get(model) || []].sort((a, b) => a - b);
    return times.length >= 20 ? times[Math.floor(times.length * 0.95)] : undefined;
  }

  take() {
    if (this.saved < 1) return false;
    this.saved -= 1;
    return true;
  }

  answered(model, ms) {
    if (!this.times.has(model)) this.times.set(model, []);
    const times = this.times.get(model);
    times.push(ms);
    if (times.length > 200) times.shift();
  }
}

// Addresses of this machine.
const HERE = /^unix:|^(localhost|127\.\d+\.\d+\.\d+|\[::1\]):\d+$/;

const lacksFeatures = ({ code, details }) =>
  code === grpc.status.FAILED_PRECONDITION && details.includes('user_features');

class Client {
  constructor(targets, options = {}) {
    if (texts(targets, 'targets').length === 0 || targets.includes('')) {
      throw new TypeError(`targets: ${JSON.stringify(targets)}, want HOST:PORT of every replica`);
    }
    this.options = {
      token: '',
      userHashKey: 'x-user-hash',
      healthService: '',
      timeoutMs: 1000,
      attempts: 3,
      hedgeShare: 0.05,
      loadFactor: 1.5,
      ...take(OPTIONS, object(options, 'options')),
    };
    const { credentials = grpc.credentials.createInsecure(), healthService } = this.options;
    const elsewhere = targets.find((target) => !HERE.test(target));
    if (this.options.token && !this.options.credentials && elsewhere !== undefined) {
      throw new TypeError(`token: ${elsewhere} is another machine, and without credentials it ` +
        'would go there in plain text');
    }
    this.hedges = new Hedges(this.options.hedgeAfterMs, this.options.hedgeShare);
    this.replicas = targets.map(
      (target) => new Replica(target, credentials, healthService, this.metadata()));
  }

  close() {
    this.replicas.forEach((replica) => replica.close());
  }

  metadata(more = {}) {
    const metadata = new grpc.Metadata();
    if (this.options.token) metadata.set('authorization', `Bearer ${this.options.token}`);
    Object.entries(more).forEach(([key, value]) => value && metadata.set(key, value));
    return metadata;
  }

  async predict(model, options) {
    const given = take(REQUEST, object(options, 'options'));
    if (given.version && given.label) {
      throw new TypeError(
        `version ${given.version} and label "${given.label}": want one of the two`);
    }
    if (!given.userKey !== !given.userVersion) {
      throw new TypeError('userKey and userVersion: want both or none');
    }
    const userHash = given.userId ? sha256(given.userId).slice(0, 16) : '';
    const metadata = this.metadata(
      { [this.options.userHashKey]: userHash, 'ulfd-priority': given.priority });
    const spec = { name: text(model, 'model') };
    if (given.version) spec.version = given.version;
    else if (given.label) spec.label = given.label;
    const { outputs, requestId, topK, returnTimings, userKey, userVersion } = given;
    const reply = await this.call({
      model: spec, userFeatures: given.user || [], adFeatures: given.ads || [],
      outputs, requestId, topK, returnTimings, userKey, userVersion,
    }, metadata, userHash, given.timeoutMs ?? this.options.timeoutMs);
    return {
      version: reply.model.version,
      outputs: Object.fromEntries(
        reply.outputs.map(({ name, shape, values }) => [name, { shape, values }])),
      indices: reply.indices,
      scores: reply.scores,
      timings: reply.timings || undefined,
      requestId: reply.requestId,
      missingIds: reply.missingIds,
      lateIds: reply.lateIds,
    };
  }

  // Those that may be called, best first: another than the last one, one that serves, one that has
  // room, the user's own one (rendezvous hashing: when one goes, only its users move).
  inOrder(key, last) {
    const usable = this.replicas.filter(({ serving }) => serving !== false);
    const calls = usable.reduce((sum, replica) => sum + replica.calls, 1);
    const bound = Math.max(FREE_CALLS, this.options.loadFactor * calls / usable.length);
    return usable
      .map((replica) => ({
        replica,
        rank: [replica === last, replica.serving === undefined, replica.calls >= bound]
          .map(Number).join('') + sha256(`${key} ${replica.target}`),
      }))
      .sort((a, b) => (a.rank < b.rank ? -1 : 1))
      .map(({ replica }) => replica);
  }

  async call(request, metadata, userHash, timeoutMs) {
    const end = Date.now() + timeoutMs;
    const key = userHash || String(Math.random());
    const hedgeWait = this.hedges.wait(request.model.name);
    // With a key, perhaps the replica has the features.
    let bare = Boolean(request.userKey) && request.userFeatures.length > 0;
    let last;
    for (let left = this.options.attempts; ;) {
      const order = this.inOrder(key, last);
      const first = bare ? { ...request, userFeatures: [] } : request;
      const { error, reply } = await this.attempt(order, first, request, metadata, end, hedgeWait);
      if (!error) return reply;
      const missing = bare && lacksFeatures(error);
      bare = false;
      if (!missing) {
        left -= 1;
        [last] = order;
        const wait = this.waitBeforeRetry(error);
        if (wait === null || left === 0 || Date.now() + wait >= end) throw error;
        await sleep(wait);
      }
    }
  }

  // One attempt, and perhaps its hedge: the first answer counts.
  async attempt(order, first, request, metadata, end, hedgeWait) {
    if (order.length === 0) {
      const details = `no replica serves ${this.options.healthService}`.trimEnd();
      return { error: Object.assign(new Error(details), { code: grpc.status.UNAVAILABLE, details }) };
    }
    const { attemptTimeoutMs = MOST_MS } = this.options;
    const begun = performance.now();
    const deadline = new Date(Math.min(end, Date.now() + attemptTimeoutMs));
    const calls = [order[0].start(first, metadata, deadline)];
    if (hedgeWait !== undefined && order.length > 1) {
      let timer;
      const late = new Promise((resolve) => { timer = setTimeout(resolve, hedgeWait, 'late'); });
      const came = await Promise.race([calls[0].done, late]);
      clearTimeout(timer);
      if (came === 'late' && this.hedges.take()) {
        calls.push(order[1].start(request, metadata, deadline));
      }
    }
    let answer = await Promise.race(calls.map(({ done }) => done));
    const { error } = answer;
    if (error && calls.length === 2 &&
        (lacksFeatures(error) || this.waitBeforeRetry(error) !== null)) {
      const both = await Promise.all(calls.map(({ done }) => done));
      answer = both.find((other) => other !== answer);
    }
    calls.forEach((call) => call.cancel());
    if (!answer.error) this.hedges.answered(request.model.name, performance.now() - begun);
    return answer;
  }

  // Milliseconds, or null where trying again would not help.
  waitBeforeRetry(error) {
    const [pushback] = error.metadata ? error.metadata.get(PUSHBACK) : [];
    if (pushback !== undefined) { // Negative: do not.  A fifth more or less: not all at once.
      return /^[0-9]+$/.test(pushback) ? Number(pushback) * (1 + 0.2 * Math.random()) : null;
    }
    if (error.code === grpc.status.DEADLINE_EXCEEDED) {
      return this.options.attemptTimeoutMs === undefined ? null : 0;
    }
    return error.code === grpc.status.UNAVAILABLE ? 10 : null;
  }
}

module.exports = { Client };
