// What deploy/clients/node/index.d.ts has to allow, and what it must not; compiled, never run.
// SPDX-License-Identifier: Apache-2.0
import { credentials } from '@grpc/grpc-js';
import { Client, Reply } from 'ulfd-client';

export async function score(): Promise<number> {
  const client = new Client(['localhost:8500'], {
    credentials: credentials.createSsl(), token: 't', userHashKey: 'k', healthService: 'model/din',
    timeoutMs: 100, attempts: 2, attemptTimeoutMs: 50, hedgeAfterMs: 'p95', hedgeShare: 0.1,
    loadFactor: 2,
  });
  const reply: Reply = await client.predict('din', {
    user: { mask: { int32s: [1, 0], shape: [1, 2] }, uid: { ids: ['9007199254740993'] } },
    ads: { mid: { ids: [1, 2, 3n], values: [1, 1, 0.5], counts: [1, 2] } },
    outputs: ['p'], label: 'canary', requestId: 'r', userId: 'u', priority: 'low', timeoutMs: 50,
    topK: { k: 2, column: -1 }, returnTimings: true, userKey: 'u', userVersion: 3,
  });
  // @ts-expect-error: no ads
  await client.predict('din', { user: {} });
  // @ts-expect-error: no such priority
  await client.predict('din', { ads: {}, priority: 'urgent' });
  // @ts-expect-error: no such percentile
  new Client(['localhost:8500'], { hedgeAfterMs: 'p50' });
  // @ts-expect-error: texts are no scores
  const first: string = reply.outputs.p.values[0];
  client.close();
  return reply.outputs.p.values[0] + reply.version + first.length + reply.indices[0] +
    (reply.timings?.totalUs ?? 0);
}
