// A KServe v2 client on @grpc/grpc-js: makes the calls of a JSON plan and prints the replies as JSON.
// SPDX-License-Identifier: Apache-2.0
//
//   node kserve.js HOST:PORT PLAN.json      PLAN: [{"rpc": "ModelInfer", "request": {...}}, ...]
//
// Raw contents are base64 in the plan and in the output.  A failed call prints {"error": {"code", "details"}}.
'use strict';

const fs = require('fs');
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const definition = loader.loadSync(path.join(__dirname, 'kserve_v2.proto'), {
  keepCase: true, longs: Number, bytes: String, defaults: true, arrays: true,
});
const { GRPCInferenceService } = grpc.loadPackageDefinition(definition).inference;

function call(client, { rpc, request }) {
  return new Promise((resolve) => {
    const deadline = new Date(Date.now() + 60000);
    client[rpc](request, { deadline }, (error, reply) => {
      resolve(error ? { error: { code: grpc.status[error.code], details: error.details } } : reply);
    });
  });
}

async function main() {
  const [target, plan] = process.argv.slice(2);
  const client = new GRPCInferenceService(target, grpc.credentials.createInsecure());
  const replies = [];
  for (const step of JSON.parse(fs.readFileSync(plan, 'utf8'))) {
    replies.push(await call(client, step));
  }
  client.close();
  process.stdout.write(JSON.stringify(replies));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
