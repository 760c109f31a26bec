// Client of ulfd: deadlines, retries that obey the server's pushback, replicas that are followed by
// their health, one user at one replica.  index.d.ts describes it.
// SPDX-License-Identifier: Apache-2.0
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const PUSHBACK = 'grpc-retry-pushback-ms';

// The package has copies of the protos; in the repository they have a folder of their own.
const packed = path.join(__dirname, 'proto');
const protos = fs.existsSync(packed) ? packed : path.join(__dirname, '..', '..', '..', 'proto');
const api = grpc.loadPackageDefinition(loader.loadSync(
  ['predict.proto', 'health.proto'].map((file) => path.join(protos, file)),
  { longs: Number, enums: String, defaults: true, arrays: true }));

const sha256 = (text) => crypto.createHash('sha256').update(text).digest('hex');

class Replica {
  constructor(target, credentials, service, metadata) {
    this.target = target;
    this.client = new api.ulfd.v1.PredictionService(target, credentials);
    // One connection for both.
    this.health = new api.grpc.health.v1.Health(target, credentials,
      { channelOverride: this.client.getChannel() });
    this.service = service;
    this.metadata = metadata;
    this.serving = true; // Until somebody says otherwise.
    this.follow();
  }

  follow() {
    this.watch = this.health.Watch({ service: this.service }, this.metadata);
    this.watch.on('data', ({ status }) => { this.serving = status === 'SERVING'; });
    this.watch.on('error', ({ code }) => {
      // A proxy without the health service may answer calls all the same.
      this.serving = code === grpc.status.UNIMPLEMENTED;
      if (!this.closed) this.timer = setTimeout(() => this.follow(), 500);
    });
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.watch.cancel();
    this.client.close();
  }

  predict(request, metadata, deadline) {
    return new Promise((resolve, reject) => {
      this.client.Predict(request, metadata, { deadline },
        (error, reply) => (error ? reject(error) : resolve(reply)));
    });
  }
}

// Milliseconds, or null where trying again would not help.
function waitBeforeRetry(error) {
  const [pushback] = error.metadata ? error.metadata.get(PUSHBACK) : [];
  if (pushback !== undefined) { // Negative: do not.  A fifth more or less: not all at once.
    return Number(pushback) >= 0 ? Number(pushback) * (1 + 0.2 * Math.random()) : null;
  }
  return error.code === grpc.status.UNAVAILABLE ? 10 : null;
}

// What protobuf would take for another number without a word is an error.
function integers(values, what) {
  return Array.from(values, (value) => {
    const rounded = typeof value === 'number' && !Number.isSafeInteger(value);
    if (rounded || !/^-?[0-9]+$/.test(value) || BigInt.asIntN(64, BigInt(value)) !== BigInt(value)) {
      throw new TypeError(`${what}: ${value}, want 64-bit integers (above 2^53 as text or bigint)`);
    }
    return String(value);
  });
}

function numbers(values, what) {
  return Array.from(values, (value) => {
    if (typeof value !== 'number') throw new TypeError(`${what}: ${value}, want numbers`);
    return value;
  });
}

const FIELDS = {
  ids: integers, int64s: integers, counts: integers, int32s: integers, shape: integers,
  values: numbers, floats: numbers,
};

function features(all = {}) {
  return Object.entries(all).map(([name, value]) => {
    const given = Object.entries(value).filter(([, list]) => list !== undefined);
    const content = Object.fromEntries(given.map(([field, list]) => {
      if (FIELDS[field] === undefined) throw new TypeError(`${name}.${field}: unknown`);
      return [field, FIELDS[field](list, `${name}.${field}`)];
    }));
    return content.ids ? { name, sparse: content } : { name, dense: content };
  });
}

class Client {
  constructor(targets, options = {}) {
    this.options = {
      credentials: grpc.credentials.createInsecure(),
      token: '',
      userKey: 'x-user-hash',
      healthService: '',
      timeoutMs: 1000,
      attempts: 3,
      ...options,
    };
    const { credentials, healthService } = this.options;
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
    const userHash = options.userId ? sha256(options.userId).slice(0, 16) : '';
    const metadata = this.metadata(
      { [this.options.userKey]: userHash, 'ulfd-priority': options.priority });
    const spec = { name: model };
    if (options.version) spec.version = options.version;
    else if (options.label) spec.label = options.label;
    const reply = await this.call({
      model: spec,
      userFeatures: features(options.user),
      adFeatures: features(options.ads),
      outputs: options.outputs,
      requestId: options.requestId,
    }, metadata, userHash, options.timeoutMs ?? this.options.timeoutMs);
    const { version } = reply.model;
    const outputs = Object.fromEntries(
      reply.outputs.map(({ name, shape, values }) => [name, { shape, values }]));
    return { version, outputs, requestId: reply.requestId, missingIds: reply.missingIds };
  }

  // Those that serve first; among them the user's own one (rendezvous hashing: when a replica goes,
  // only its users move).
  inOrder(userHash) {
    const key = userHash || String(Math.random());
    return this.replicas
      .map((replica) => ({
        replica,
        rank: (replica.serving ? '0' : '1') + sha256(`${key} ${replica.target}`),
      }))
      .sort((a, b) => (a.rank < b.rank ? -1 : 1))
      .map(({ replica }) => replica);
  }

  async call(request, metadata, userHash, timeoutMs) {
    const end = Date.now() + timeoutMs;
    let replica;
    for (let attempt = 0; ; ++attempt) {
      const order = this.inOrder(userHash);
      const last = replica;
      replica = order.find((found) => found !== last) || last;
      try {
        return await replica.predict(request, metadata, new Date(end));
      } catch (error) {
        const wait = waitBeforeRetry(error);
        const over = wait === null || Date.now() + wait >= end;
        if (over || attempt + 1 >= this.options.attempts) throw error;
        await new Promise((resolve) => { setTimeout(resolve, wait); });
      }
    }
  }
}

module.exports = { Client };
