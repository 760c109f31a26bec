// Scores two ads for each of some users.
// SPDX-License-Identifier: Apache-2.0
//
//   node example.js HOST:PORT[,HOST:PORT...] MODEL AD_FEATURE [USERS]
'use strict';

const { Client } = require('ulfd-client');

async function main() {
  const [targets, model, feature, users = '1'] = process.argv.slice(2);
  const client = new Client(targets.split(','), { timeoutMs: 5000 });
  try {
    for (let number = 0; number < Number(users); ++number) {
      const { version, outputs } = await client.predict(model, {
        ads: { [feature]: { ids: [1, 2] } },
        userId: `user-${number}`,
      });
      for (const [name, { values }] of Object.entries(outputs)) {
        console.log(`${model} v${version} ${name}:`, ...values);
      }
    }
  } finally {
    client.close();
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
