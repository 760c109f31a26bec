// SPDX-License-Identifier: Apache-2.0
import { ChannelCredentials } from '@grpc/grpc-js';

/** A sparse feature.  values: a weight per id (default 1).  counts: ids per row (default: one for
 * each ad, all of them for the user).  An id above 2^53 is given as text or bigint. */
export interface Sparse {
  ids: ArrayLike<number | string | bigint>;
  values?: ArrayLike<number>;
  counts?: ArrayLike<number>;
}

/** A dense input; one of the three, row-major, with the shape if it is not the model's own. */
export interface Dense {
  floats?: ArrayLike<number>;
  int32s?: ArrayLike<number>;
  int64s?: ArrayLike<number | string | bigint>;
  shape?: ArrayLike<number>;
}

export interface ClientOptions {
  /** Of @grpc/grpc-js; default: plain text. */
  credentials?: ChannelCredentials;
  token?: string;
  /** The metadata key of the user's hash, by which proxies route and canaries choose.
   * Default: "x-user-hash". */
  userHashKey?: string;
  /** "model/NAME" follows one model.  Default: the whole server. */
  healthService?: string;
  /** Of a call, with all its attempts.  Default: 1000. */
  timeoutMs?: number;
  /** Default: 3. */
  attempts?: number;
  /** Of each attempt.  Default: what is left. */
  attemptTimeoutMs?: number;
  /** After so long a call goes to a second replica, too; "p95" of the last calls of the model.
   * Default: never. */
  hedgeAfterMs?: number | 'p95';
  /** At most so many of the calls.  Default: 0.05. */
  hedgeShare?: number;
  /** A replica with more than so many times its share of the calls under way leaves users to
   * others.  Default: 1.5. */
  loadFactor?: number;
}

export interface PredictOptions {
  user?: Record<string, Sparse | Dense>;
  ads: Record<string, Sparse | Dense>;
  /** Empty: all. */
  outputs?: string[];
  version?: number;
  label?: string;
  requestId?: string;
  /** The k best ads by a column of an output (default: the first asked for that has a row per ad). */
  topK?: number | { k: number; output?: string; column?: number };
  /** Fills Reply.timings. */
  returnTimings?: boolean;
  /** With userVersion: the user's features are sent only where the replica does not have them. */
  userKey?: string;
  userVersion?: number;
  /** Whoever it is has one replica while it serves; only a hash of it is sent. */
  userId?: string;
  priority?: 'high' | 'normal' | 'low';
  timeoutMs?: number;
}

export interface Reply {
  version: number;
  /** By name; values are row-major, a row per ad, or with topK a row per element of indices. */
  outputs: Record<string, { shape: number[]; values: number[] }>;
  /** With topK: positions in the request, best first, and what they were ordered by. */
  indices: number[];
  scores: number[];
  /** Unit: microseconds. */
  timings?: Record<
    'queueUs' | 'decodeUs' | 'embedUs' | 'userUs' | 'denseUs' | 'encodeUs' | 'totalUs' | 'fetchUs',
    number>;
  requestId: string;
  missingIds: number;
  lateIds: number;
}

export class Client {
  /** targets: "HOST:PORT" of every replica.  What could not be sent as it is given is a TypeError,
   * here and from predict. */
  constructor(targets: string[], options?: ClientOptions);
  /** Rejects with the ServiceError of @grpc/grpc-js: code and details say why. */
  predict(model: string, options: PredictOptions): Promise<Reply>;
  close(): void;
}
