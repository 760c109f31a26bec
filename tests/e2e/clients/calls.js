// Makes calls with deploy/clients/node as a test tells it to: a JSON object with the arguments of
// Client on the first line, then one with those of predict on each; a line of JSON comes back for
// every call.
// SPDX-License-Identifier: Apache-2.0
'use strict';

const readline = require('readline');
const { Client } = require('ulfd-client');

async function main() {
  let client;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { targets, model, ...options } = JSON.parse(line);
    if (client === undefined) {
      client = new Client(targets, options);
      continue;
    }
    let answer;
    try {
      answer = await client.predict(model, options);
    } catch (error) {
      answer = { code: error.code, details: error.details };
    }
    console.log(JSON.stringify(answer));
  }
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
