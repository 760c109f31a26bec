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
  userKey?: string;
  /** "model/NAME" follows one model.  Default: the whole server. */
  healthService?: string;
  /** Of a call, with all its attempts.  Default: 1000. */
  timeoutMs?: number;
  /** Default: 3. */
  attempts?: number;
}

export interface PredictOptions {
  user?: Record<string, Sparse | Dense>;
  ads: Record<string, Sparse | Dense>;
  /** Empty: all. */
  outputs?: string[];
  version?: number;
  label?: string;
  requestId?: string;
  /** Whoever it is has one replica while it serves; only a hash of it is sent. */
  userId?: string;
  priority?: 'high' | 'normal' | 'low';
  timeoutMs?: number;
}

export interface Reply {
  version: number;
  /** By name; values are row-major, a row per ad. */
  outputs: Record<string, { shape: number[]; values: number[] }>;
  requestId: string;
  missingIds: number;
}

export class Client {
  /** targets: "HOST:PORT" of every replica. */
  constructor(targets: string[], options?: ClientOptions);
  /** Rejects with the ServiceError of @grpc/grpc-js: code and details say why. */
  predict(model: string, options: PredictOptions): Promise<Reply>;
  close(): void;
}
