// A bare gRPC server before ONNX Runtime: ulfd's PredictRequest in, scores out, one thread.
// SPDX-License-Identifier: Apache-2.0
//
//   node peer.js MODULES ONNXRUNTIME PROTO MODEL.onnx METADATA
//
// MODULES, ONNXRUNTIME: folders of node_modules with @grpc/grpc-js and with onnxruntime-node.  METADATA: the reply to
// GetModelMetadata as bytes.  Prints its port.  SIGHUP loads the model again and then swaps it in.  Answers
// /versus/Spent with the microseconds of CPU that runs of the model took (right where calls come one by one) and
// the number of loads, as JSON.
"use strict";
const fs = require("fs");
const path = require("path");
const [modules, onnxruntime, proto, model, metadata] = process.argv.slice(2);
const grpc = require(path.join(modules, "@grpc", "grpc-js"));
const protobuf = require(path.join(modules, "protobufjs"));
const ort = require(path.join(onnxruntime, "onnxruntime-node"));

// Integers as numbers, not as objects: the ids here are small, and the peer shall not lose by that.
protobuf.util.Long = null;
protobuf.configure();
const types = new protobuf.Root();
types.resolvePath = (origin, target) =>
  target.startsWith("google/") ? target : path.resolve(path.dirname(proto), path.basename(target));
types.loadSync(proto);
// Packed floats are on the wire as bytes are, and as tensors want them: nothing is decoded.
const Dense = types.lookupType("ulfd.v1.DenseTensor");
Dense.remove(Dense.fields.floats);
Dense.add(new protobuf.Field("floats", 2, "bytes"));
const Request = types.lookupType("ulfd.v1.PredictRequest");
const Reply = types.lookupType("ulfd.v1.PredictResponse");

let session;
let loads = 0;
let spent = 0;

async function load() {
  session = await ort.InferenceSession.create(model, {
    intraOpNumThreads: 1, interOpNumThreads: 1, executionMode: "sequential", graphOptimizationLevel: "all",
  });
  loads += 1;
}

function int64s(ids) {
  const words = new Int32Array(2 * ids.length);
  for (let i = 0; i < ids.length; i += 1) {
    words[2 * i] = ids[i];  // The lower 32 bits.
    words[2 * i + 1] = Math.floor(ids[i] / 4294967296);
  }
  return new BigInt64Array(words.buffer);
}

function float32s(bytes) {
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

function tensor(feature, shape, count) {
  const data = feature.sparse ? int64s(feature.sparse.ids) : float32s(feature.dense.floats);
  const dims = shape.map((size) => (typeof size === "number" ? size : count));
  return new ort.Tensor(feature.sparse ? "int64" : "float32", data, dims);
}

async function score(request) {
  const feeds = {};
  const shapes = Object.fromEntries(session.inputMetadata.map((input) => [input.name, input.shape]));
  for (const feature of [...request.userFeatures, ...request.adFeatures]) {
    const shape = shapes[feature.name];
    const count = feature.sparse ? feature.sparse.ids.length : feature.dense.floats.length / 4 / shape[1];
    feeds[feature.name] = tensor(feature, shape, count);
  }
  const begin = process.cpuUsage();
  const outputs = await session.run(feeds);
  const { user, system } = process.cpuUsage(begin);
  spent += user + system;
  return Object.entries(outputs).map(([name, found]) => ({ name, shape: found.dims, values: found.data }));
}

const raw = (bytes) => bytes;
const method = (name, decode, encode) => ({
  path: name, requestStream: false, responseStream: false, requestDeserialize: decode, responseSerialize: encode,
});
const service = {
  predict: method("/ulfd.v1.PredictionService/Predict", (bytes) => Request.decode(bytes),
    (reply) => Reply.encode(reply).finish()),
  metadata: method("/ulfd.v1.PredictionService/GetModelMetadata", raw, raw),
  spent: method("/versus/Spent", raw, raw),
};
const handlers = {
  predict: (call, done) => score(call.request).then(
    (outputs) => done(null, { outputs }),
    (error) => done({ code: grpc.status.INTERNAL, details: String(error) })),
  metadata: (call, done) => done(null, fs.readFileSync(metadata)),
  spent: (call, done) => done(null, Buffer.from(JSON.stringify({ us: spent, loads }))),
};

load().then(() => {
  const server = new grpc.Server({ "grpc.max_receive_message_length": -1 });
  server.addService(service, handlers);
  server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    process.on("SIGHUP", load);
    console.log(port);
  });
});
