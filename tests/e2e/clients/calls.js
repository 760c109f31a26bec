// Makes calls with deploy/clients/node as a test tells it to: a JSON object with the arguments of
// Client on the first line, then one with those of predict on each, made `burst` times at once; a
// line of JSON comes back for every call.
// SPDX-License-Identifier: Apache-2.0
'use strict';

const readline = require('readline');
const { Client } = require('ulfd-client');

async function main() {
  let client;
  const call = async (model, options) => {
    let answer;
    try {
      answer = await client.predict(model, options);
    } catch (error) {
      if (error.code === undefined) throw error;
      answer = { code: error.code, details: error.details };
    }
    console.log(JSON.stringify(answer));
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { targets, model, burst, ...options } = JSON.parse(line);
    if (client === undefined) {
      client = new Client(targets, options);
    } else {
      await Promise.all(Array.from({ length: burst }, () => call(model, options)));
    }
  }
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
