// An object store on a free port, which it prints: store.js NODE_MODULES DIRECTORY BUCKET.
// SPDX-License-Identifier: Apache-2.0
"use strict";
const path = require("path");
const [modules, directory, bucket] = process.argv.slice(2);
const S3rver = require(path.join(modules, "s3rver"));

new S3rver({ address: "127.0.0.1", port: 0, silent: true, directory, configureBuckets: [{ name: bucket }] })
  .run().then(({ port }) => console.log(port));
