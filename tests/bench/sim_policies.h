// Schedulers for the simulator: ours, by its own code, and three kinds that other servers have.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_SIM_POLICIES_H_
#define ULFD_TESTS_BENCH_SIM_POLICIES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ulfd::bench {

// What work takes in the simulated machine.  Unit: nanoseconds.
struct TrueCost {
  double base_ns = 30e3, user_ns = 10e3, row_ns = 2e3;
  double Of(int64_t users, int64_t rows) const {
    return base_ns + user_ns * static_cast<double>(users) + row_ns * static_cast<double>(rows);
  }
};

struct SimRequest {
  int64_t arrival_ns = 0;
  int64_t deadline_ns = 0;
  int64_t rows = 1;
};

struct SimMachine {
  int workers = 64;
  int64_t max_queued_requests = 1000;
  TrueCost cost;
};

// A piece of work for one worker.
struct SimPiece {
  int64_t id = 0;      // The policy's own.
  double cost_ns = 0;  // By TrueCost.
};

// One scheduler.  Calls come in the order of time.
class SimPolicy {
 public:
  virtual ~SimPolicy() = default;
  // A request arrives.  false: it is refused.
  virtual bool Arrive(int request, int64_t now_ns) = 0;
  // The next piece for an idle worker, `idle` others being idle, too.
  virtual std::optional<SimPiece> Take(int idle, int64_t now_ns) = 0;
  // A piece is done after `took_ns`; requests that ended are appended to `ended`.
  virtual void Done(const SimPiece& piece, int64_t took_ns, int64_t now_ns,
                    std::vector<int>& ended) = 0;
  // When Take may answer differently although nothing happens; INT64_MAX: never.
  virtual int64_t NextTimer() const { return INT64_MAX; }
  // Requests that were given up since the last call.
  virtual void TakeDropped(std::vector<int>& dropped) {}
};

// `requests` is borrowed.
//   ours      JobQueue with its cost model
//   fifo      one request, one thread, in the order of arrival
//   timeout   batches formed on arrival, closed when full or after 1 ms (TF Serving's basic
//             scheduler)
//   adaptive  the oldest batch goes when fewer than a limit run, which hill-climbs by mean latency
std::unique_ptr<SimPolicy> MakePolicy(const std::string& name, const SimMachine& machine,
                                      const std::vector<SimRequest>& requests);
const std::vector<std::string>& PolicyNames();

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_SIM_POLICIES_H_
