// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/job_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "server/scheduler/refusal.h"
#include "server/system/room_share.h"

namespace ulfd::server {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How many times its own cost a job may wait before jobs that came later stop passing it.
constexpr int64_t kStretch = 8;
// The part of the time that a deadline gave in which waiting is no sign of overload.
constexpr int64_t kPatience = 4;
// The part of the time until the deadline that is not planned with.  Predictions are means: what is
// planned to be just in time is late every other time, and computed for nobody.
constexpr int64_t kReserve = 5;
constexpr int64_t kTileMultiple = 16;
// Jobs in a row that do not fit into a batch before the search for more ends.
constexpr int kMisfits = 16;
// Clients without jobs that are remembered.
constexpr size_t kMostIdle = 256;

std::string Ms(nanoseconds time) {
  return absl::StrFormat("%.1f ms", static_cast<double>(time.count()) / 1e6);
}

}  // namespace

struct JobQueue::Entry {
  Job* job = nullptr;
  std::shared_ptr<Lane> lane;  // The job may be gone before the entry is.
  Clients::iterator client;    // Once it is accepted.
  Flow* flow = nullptr;        // The client's.
  int priority = 0;
  TimePoint arrival, key;
  uint64_t sequence = 0;
  nanoseconds cost{0};  // Predicted, of what nobody has started yet.
  nanoseconds once{0};  // The part of the cost that does not grow with the rows.
  int64_t rows = 0;
  int64_t counted_rows = 0;  // While it waits.
  int64_t next_row = 0;
  int running = 0;     // Workers that compute a piece of it now.
  bool begun = false;  // A worker has taken it.
  bool ready = false;  // Begin is over.
  int64_t held_bytes = 0;
  bool ordered = false;   // Is in the lane's set.
  absl::Status given_up;  // Not OK: ends as soon as nobody computes it.
};

bool JobQueue::ByKey::operator()(const Entry* a, const Entry* b) const {
  return a->key != b->key ? a->key < b->key : a->sequence < b->sequence;
}

bool JobQueue::ByAge::operator()(const Entry* a, const Entry* b) const {
  return a->sequence < b->sequence;
}

JobQueue::JobQueue(const JobQueueOptions& options)
    : options_(options), overload_(options.codel_target, options.codel_interval) {}

JobQueue::~JobQueue() = default;

milliseconds JobQueue::RetryAfter(nanoseconds work) const {
  return milliseconds(1) + std::chrono::duration_cast<milliseconds>(work / options_.workers);
}

absl::Status JobQueue::CheckLimits(const Entry& entry, const Client& client) const {
  const milliseconds retry = RetryAfter(pending());
  if (!HasRoom(queued_requests_, client.queued_requests, 1, options_.max_queued_requests)) {
    return Refuse(ShedReason::kQueueFull,
                  absl::StrCat(queued_requests_, " requests wait, ", client.queued_requests,
                               " of this client, limit ", options_.max_queued_requests),
                  retry);
  }
  // One job alone may be larger than the limits: it would never be served otherwise.  It does not
  // close the queue for all others.
  if (queued_rows_ > 0 &&
      !HasRoom(queued_rows_, client.queued_rows, entry.rows, options_.max_queued_rows)) {
    return Refuse(ShedReason::kQueueFull,
                  absl::StrCat(queued_rows_, " ads wait, ", client.queued_rows,
                               " of this client, and this request has ", entry.rows, ", limit ",
                               options_.max_queued_rows),
                  retry);
  }
  const int workers = options_.workers;
  if (pending().count() > 0 && !HasRoom(pending().count(), client.work.count(), entry.cost.count(),
                                        (workers * options_.max_queued_work).count())) {
    return Refuse(
        ShedReason::kQueueFull,
        absl::StrCat(Ms(pending() / workers), " of work wait, ", Ms(client.work / workers),
                     " of this client, and this request needs ", Ms(entry.cost), ", limit ",
                     Ms(options_.max_queued_work)),
        retry);
  }
  const Lane& lane = *entry.lane;
  const int64_t limit = lane.max_queued_rows();
  const auto flow = client.flows.find(entry.lane.get());
  const int64_t own = flow == client.flows.end() ? 0 : flow->second.queued_rows;
  if (lane.queued_rows_ > 0 && !HasRoom(lane.queued_rows_, own, entry.rows, limit)) {
    return Refuse(ShedReason::kQuota,
                  absl::StrCat(lane.queued_rows_, " ads wait for model \"", lane.name(), "\", ",
                               own, " of this client, and this request has ", entry.rows,
                               ", its limit is ", limit),
                  retry);
  }
  return absl::OkStatus();
}

nanoseconds JobQueue::Waiting(const Flow& flow, int priority, TimePoint until) {
  nanoseconds work(0);
  for (const Entry* entry : flow.waiting[priority]) {
    if (entry->key > until) break;
    work += entry->cost;
  }
  return work;
}

nanoseconds JobQueue::Ahead(const Entry& entry, const Client& client) const {
  const auto by_weight = [](nanoseconds work, const Lane& lane) {
    return static_cast<double>(work.count()) / lane.weight();
  };
  const auto own = client.flows.find(entry.lane.get());
  nanoseconds ahead(0);
  if (own != client.flows.end()) ahead = Waiting(own->second, entry.priority, entry.key);
  // Until the job is done, each of the client's lanes gets as much as its own, and each client as
  // much as this one.
  const double of_lane = by_weight(ahead + entry.cost, *entry.lane);
  double of_client = of_lane;
  for (auto flow = client.flows.begin(); flow != client.flows.end(); ++flow) {
    if (flow == own) continue;
    const nanoseconds all = Waiting(flow->second, entry.priority);
    const double part = std::min(by_weight(all, *flow->second.lane), of_lane);
    of_client += part;
    ahead += nanoseconds(static_cast<int64_t>(part * flow->second.lane->weight()));
  }
  for (const auto& [name, other] : clients_) {
    nanoseconds all(0);
    double weighted = 0;
    for (const auto& [lane, flow] : other.flows) {
      for (int p = 0; p < entry.priority; ++p) ahead += Waiting(flow, p);
      const nanoseconds work = Waiting(flow, entry.priority);
      all += work;
      weighted += by_weight(work, *lane);
    }
    if (&other == &client || weighted == 0) continue;
    const double part = std::min(1.0, of_client / weighted);
    ahead += nanoseconds(static_cast<int64_t>(static_cast<double>(all.count()) * part));
  }
  return running_work_ + ahead;
}

bool JobQueue::Large(const Entry& entry) const {
  const nanoseconds tile = Tile(*entry.lane);
  return entry.job->divisible() && entry.rows >= 2 * entry.lane->piece_rows() &&
         entry.cost > tile + tile / 2;
}

nanoseconds JobQueue::Alone(const Entry& entry) const {
  if (!Large(entry)) return entry.cost;
  return std::max(entry.cost / options_.workers,
                  std::min(entry.cost, entry.once + Tile(*entry.lane)));
}

nanoseconds JobQueue::Tile(const Lane& lane) const {
  const double rows = static_cast<double>(lane.piece_rows());
  const nanoseconds piece(static_cast<int64_t>(rows * lane.cost().parts().row_ns));
  return std::max(options_.tile, piece);
}

nanoseconds JobQueue::Takes(const Entry& entry) {
  // What was predicted on arrival may have been put right since.
  const nanoseconds cost = entry.lane->cost().Predict(1, entry.rows);
  if (entry.job->deadline() == TimePoint::max()) return cost;
  return std::max<nanoseconds>(cost, (entry.job->deadline() - entry.arrival) / kPatience);
}

bool JobQueue::MakesDeadline(const Entry& entry, nanoseconds wait) const {
  const TimePoint deadline = entry.job->deadline();
  if (deadline == TimePoint::max()) return true;
  const nanoseconds until = deadline - entry.arrival;
  const nanoseconds left = until - until / kReserve;
  // Only runs put a wrong prediction right: of each lane one job is tried at any time, if nothing
  // but its own prediction is against it.
  return wait + Alone(entry) <= left || (wait <= left && entry.lane->jobs_ == 0);
}

absl::Status JobQueue::CheckWait(const Entry& entry, const Client& client) const {
  const nanoseconds takes = overload_.overloaded() ? Takes(entry) : nanoseconds(0);
  // Short enough even behind everything that is there.
  const nanoseconds longest = pending() / options_.workers;
  if (MakesDeadline(entry, longest) && !overload_.TooLong(longest, takes)) {
    return absl::OkStatus();
  }
  const nanoseconds ahead = Ahead(entry, client);
  const nanoseconds wait = ahead / options_.workers;
  if (!MakesDeadline(entry, wait)) {
    return Refuse(
        ShedReason::kDeadline,
        absl::StrCat("a wait of ", Ms(wait), " and ", Ms(Alone(entry)),
                     " to compute are expected, the deadline leaves ",
                     Ms(entry.job->deadline() - entry.arrival), ", a fifth of it in reserve"),
        RetryAfter(ahead));
  }
  if (overload_.TooLong(wait, takes)) {
    return Refuse(
        ShedReason::kCodel,
        absl::StrCat("a wait of ", Ms(wait), " is expected in a queue that does not empty"),
        RetryAfter(ahead));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<JobQueue::Entry>> JobQueue::Examine(Job* job, TimePoint now) {
  if (job->cancelled()) return absl::CancelledError("the caller went away");
  if (job->deadline() <= now) {
    return absl::DeadlineExceededError("the deadline had passed when the call arrived");
  }
  auto entry = std::make_unique<Entry>();
  entry->job = job;
  entry->lane = job->lane();
  entry->priority = static_cast<int>(job->priority());
  entry->arrival = now;
  entry->rows = job->rows();
  entry->counted_rows =
      std::min(entry->rows <= options_.max_queued_rows ? entry->rows : options_.max_queued_rows / 2,
               options_.max_job_rows);
  const CostModel::Parts parts = entry->lane->cost().parts();
  entry->cost = parts.Of(1, entry->rows);
  entry->once = parts.Of(1, 0);
  entry->key = now + kStretch * entry->cost;
  if (job->deadline() != TimePoint::max()) {
    entry->key = std::min(entry->key, job->deadline() - entry->cost);
  }
  static const Client kNew;
  const auto found = clients_.find(job->client());
  const Client& client = found == clients_.end() ? kNew : found->second;
  RETURN_IF_ERROR(CheckLimits(*entry, client));
  // While nothing comes nobody observes.
  if (unstarted_.empty()) overload_.Observe(nanoseconds(0), nanoseconds(0), now);
  RETURN_IF_ERROR(CheckWait(*entry, client));
  return entry;
}

absl::Status JobQueue::Check(Job* job, TimePoint now) { return Examine(job, now).status(); }

absl::StatusOr<JobQueue::Entry*> JobQueue::Accept(Job* job, TimePoint now) {
  ASSIGN_OR_RETURN(std::unique_ptr<Entry> entry, Examine(job, now));
  entry->sequence = next_sequence_++;
  Entry* const accepted = entry.get();
  Lane& lane = *entry->lane;
  // Nothing is counted if there is no memory for it; a client without jobs goes with its next one.
  const auto [client, is_new] =
      clients_.try_emplace(job->client(), Client{.virtual_time_ns = client_time_ns_});
  if (is_new) {
    const auto before = idle_.extract(job->client());
    if (!before.empty()) {
      client->second.virtual_time_ns = std::max(client_time_ns_, before.mapped().virtual_time_ns);
    }
  }
  Flow& flow = client->second.flows.try_emplace(&lane, Flow{.lane = entry->lane}).first->second;
  owned_.emplace(accepted, std::move(entry));
  accepted->client = client;
  accepted->flow = &flow;
  ++client->second.jobs;
  client->second.work += accepted->cost;
  // A lane that was idle does not claim the time that it did not use.
  if (flow.jobs++ == 0) {
    flow.virtual_time_ns = std::max(flow.virtual_time_ns, client->second.flow_time_ns);
  }
  ++lane.jobs_;
  ++entries_;
  waiting_work_ += accepted->cost;
  return accepted;
}

absl::Status JobQueue::Admit(Job* job, TimePoint now) {
  ASSIGN_OR_RETURN(Entry* const entry, Accept(job, now));
  Enqueue(entry);
  return absl::OkStatus();
}

void JobQueue::Enqueue(Entry* entry) noexcept {
  entry->lane->queued_rows_ += entry->rows;
  ++entry->client->second.queued_requests;
  entry->client->second.queued_rows += entry->counted_rows;
  entry->flow->queued_rows += entry->counted_rows;
  ++queued_requests_;
  queued_rows_ += entry->counted_rows;
  unstarted_.insert(entry);
  Insert(entry);
}

absl::Status JobQueue::AdmitTaken(Job* job, TimePoint now, nanoseconds at_most, Work& work) {
  work = {.jobs = {job}};
  ASSIGN_OR_RETURN(Entry* const entry, Accept(job, now));
  if (entry->cost > at_most) {
    Enqueue(entry);
    return absl::OkStatus();
  }
  work.kind = Work::Kind::kTogether;
  work.entry = entry;
  work.end = entry->rows;
  work.predicted = entry->cost;
  HandOut(entry, entry->cost);
  entry->begun = true;
  ++entry->running;
  return absl::OkStatus();
}

void JobQueue::Insert(Entry* entry) {
  entry->flow->waiting[entry->priority].insert(entry);
  ++waiting_;
  entry->ordered = true;
}

void JobQueue::Erase(Entry* entry) {
  if (!entry->ordered) return;
  entry->flow->waiting[entry->priority].erase(entry);
  --waiting_;
  entry->ordered = false;
}

void JobQueue::Unqueue(Entry* entry) {
  if (entry->begun) return;
  entry->begun = true;
  unstarted_.erase(entry);
  --queued_requests_;
  queued_rows_ -= entry->counted_rows;
  entry->lane->queued_rows_ -= entry->rows;
  --entry->client->second.queued_requests;
  entry->client->second.queued_rows -= entry->counted_rows;
  entry->flow->queued_rows -= entry->counted_rows;
}

void JobQueue::Forget(Entry* entry) {
  Unqueue(entry);
  Erase(entry);
  waiting_work_ -= entry->cost;
  Client& client = entry->client->second;
  client.work -= entry->cost;
  --entry->lane->jobs_;
  entry->lane->held_bytes_ -= entry->held_bytes;
  if (--entry->flow->jobs == 0) {
    std::erase_if(client.flows, [&](const auto& flow) {
      return flow.second.jobs == 0 && flow.second.virtual_time_ns <= client.flow_time_ns;
    });
  }
  if (--client.jobs == 0) Leave(entry->client);
  --entries_;
  owned_.erase(entry);
}

void JobQueue::Leave(Clients::iterator client) {
  // Else each of its calls would be a newcomer's, if they only come one after the other.
  const auto has_more = [this](const auto& entry) {
    return entry.second.virtual_time_ns > client_time_ns_;
  };
  if (!has_more(*client)) {
    clients_.erase(client);
    return;
  }
  if (idle_.size() >= kMostIdle) {
    std::erase_if(idle_, [&](const auto& entry) { return !has_more(entry); });
  }
  auto node = clients_.extract(client);
  node.mapped().flows.clear();
  if (idle_.size() < kMostIdle) idle_.insert(std::move(node));
}

void JobQueue::HandOut(Entry* entry, nanoseconds part) {
  entry->cost -= part;
  entry->client->second.work -= part;
  waiting_work_ -= part;
  running_work_ += part;
  Charge(*entry, part);
}

void JobQueue::Charge(Entry& entry, nanoseconds work) {
  Client& client = entry.client->second;
  const double ns = static_cast<double>(work.count()) / entry.lane->weight();
  client_time_ns_ =
      std::max(client_time_ns_ + ns / static_cast<double>(clients_.size()), client.virtual_time_ns);
  client.virtual_time_ns += ns;
  client.flow_time_ns = entry.flow->virtual_time_ns;
  entry.flow->virtual_time_ns += ns;
}

bool JobQueue::MayGoOn(const Entry& entry) const {
  return entry.ready || entry.lane->held_bytes_ < options_.max_held_bytes || !Large(entry);
}

JobQueue::Entry* JobQueue::First(const Ordered& waiting) const {
  for (Entry* entry : waiting) {
    if (MayGoOn(*entry)) return entry;
  }
  return nullptr;
}

JobQueue::Entry* JobQueue::Pick() {
  for (int p = 0; p < kPriorities; ++p) {
    const Ordered* best = nullptr;
    using Rank = std::tuple<double, double, absl::string_view, TimePoint>;
    Rank best_rank;
    for (const auto& [name, client] : clients_) {
      for (const auto& [lane, flow] : client.flows) {
        const Entry* const entry = First(flow.waiting[p]);
        if (entry == nullptr) continue;
        const Rank rank(client.virtual_time_ns, flow.virtual_time_ns, flow.lane->name(),
                        entry->key);
        if (best != nullptr && rank >= best_rank) continue;
        best = &flow.waiting[p];
        best_rank = rank;
      }
    }
    if (best == nullptr) continue;
    if (!overload_.newest_first()) return First(*best);
    // What is begun gets finished, then the newest has the best chance to be in time.
    Entry* newest = nullptr;
    for (Entry* entry : *best) {
      if (entry->ready) return entry;
      if (!MayGoOn(*entry)) continue;
      if (newest == nullptr || entry->sequence > newest->sequence) newest = entry;
    }
    return newest;
  }
  return nullptr;
}

absl::Status JobQueue::StillWanted(const Entry& entry, TimePoint now) const {
  const Job& job = *entry.job;
  if (job.cancelled()) return absl::CancelledError("the caller went away");
  if (job.deadline() <= now) {
    return absl::DeadlineExceededError(
        entry.begun ? "the deadline passed while the request was computed"
                    : "the deadline passed while the request waited for a worker");
  }
  return absl::OkStatus();
}

void JobQueue::Shed(TimePoint now, std::vector<Dropped>& dropped) {
  if (unstarted_.empty()) {
    overload_.Observe(nanoseconds(0), nanoseconds(0), now);
    return;
  }
  const auto waited = [now](const Entry& entry) { return now - entry.arrival; };
  overload_.Observe(waited(**unstarted_.begin()), Takes(**unstarted_.begin()), now);
  while (!unstarted_.empty()) {
    Entry* oldest = *unstarted_.begin();
    if (!overload_.TooOld(waited(*oldest), Takes(*oldest))) return;
    dropped.push_back({oldest->job, Refuse(ShedReason::kCodel,
                                           absl::StrCat("waited ", Ms(waited(*oldest)),
                                                        " in a queue that does not empty"),
                                           RetryAfter(pending()))});
    Forget(oldest);
  }
}

JobQueue::Work JobQueue::Take(TimePoint now, int idle, std::vector<Dropped>& dropped) {
  Shed(now, dropped);
  while (Entry* entry = Pick()) {
    absl::Status wanted = StillWanted(*entry, now);
    if (!wanted.ok()) {
      if (entry->running > 0) {
        entry->given_up = std::move(wanted);
        Erase(entry);
      } else {
        dropped.push_back({entry->job, std::move(wanted)});
        Forget(entry);
      }
      continue;
    }
    if (entry->ready) return TakeRows(entry);
    return Large(*entry) ? TakeBegin(entry) : TakeTogether(entry, now, idle, dropped);
  }
  return {};
}

void JobQueue::FillBatch(std::vector<Entry*>& batch, int64_t& rows, TimePoint now,
                         std::vector<Dropped>& dropped) {
  const Entry* first = batch.front();
  const CostModel::Parts parts = first->lane->cost().parts();
  // Everybody in a batch waits for its end: it pays as far as they would wait for each other
  // anyway.
  const nanoseconds most =
      std::min(Tile(*first->lane), std::max(2 * first->cost, waiting_work_ / options_.workers)) +
      nanoseconds(options_.max_batch_requests);  // Each cost is rounded down.
  std::vector<Entry*> unwanted;
  int misfits = 0;
  const auto full = [&] {
    return static_cast<int>(batch.size()) >= options_.max_batch_requests || misfits >= kMisfits;
  };
  const auto add = [&](Entry* entry) {
    if (entry == first || entry->begun) return;
    const int64_t users = static_cast<int64_t>(batch.size()) + 1;
    if (rows + entry->rows > options_.max_batch_rows ||
        parts.Of(users, rows + entry->rows) > most) {
      ++misfits;
      return;
    }
    absl::Status wanted = StillWanted(*entry, now);
    if (!wanted.ok()) {
      dropped.push_back({entry->job, std::move(wanted)});
      unwanted.push_back(entry);
      return;
    }
    batch.push_back(entry);
    rows += entry->rows;
  };
  // Places in a batch are work that is handed out, too: who got the least comes first.
  std::vector<const Client*> clients;
  for (const auto& [name, client] : clients_) clients.push_back(&client);
  std::stable_sort(clients.begin(), clients.end(), [](const Client* a, const Client* b) {
    return a->virtual_time_ns < b->virtual_time_ns;
  });
  for (const Client* client : clients) {
    const auto flow = client->flows.find(first->lane.get());
    if (flow == client->flows.end()) continue;
    for (Entry* entry : flow->second.waiting[first->priority]) {
      if (full()) break;
      add(entry);
    }
  }
  for (Entry* entry : unwanted) Forget(entry);
}

JobQueue::Work JobQueue::TakeTogether(Entry* first, TimePoint now, int idle,
                                      std::vector<Dropped>& dropped) {
  std::vector<Entry*> batch = {first};
  int64_t rows = first->rows;
  // Others are left to workers that are idle: alone they are done sooner.
  if (idle == 0 && options_.max_batch_requests > 1 && first->lane->merges()) {
    FillBatch(batch, rows, now, dropped);
  }
  Work work{.kind = Work::Kind::kTogether, .entry = first, .end = rows};
  for (Entry* entry : batch) {
    work.jobs.push_back(entry->job);
    work.predicted += entry->cost;
    HandOut(entry, entry->cost);
    Unqueue(entry);
    Erase(entry);
    if (entry != first) work.others.push_back(entry);
  }
  ++first->running;
  return work;
}

JobQueue::Work JobQueue::TakeBegin(Entry* entry) {
  Work work{.kind = Work::Kind::kBegin, .jobs = {entry->job}, .entry = entry};
  work.predicted = std::min(entry->once, entry->cost);
  HandOut(entry, work.predicted);
  Unqueue(entry);
  Erase(entry);
  ++entry->running;
  return work;
}

JobQueue::Work JobQueue::TakeRows(Entry* entry) {
  const int64_t left = entry->rows - entry->next_row;
  const int64_t row_ns = std::max<int64_t>(1, entry->cost.count() / left);
  int64_t rows = options_.tile.count() / row_ns;
  const int64_t least = entry->lane->piece_rows();
  rows = std::max(least, rows / kTileMultiple * kTileMultiple);
  // Two equal pieces rather than a full one and a crumb, or one that is larger.
  if (left > rows && left < 2 * rows) {
    const int64_t half = (left / 2 + kTileMultiple - 1) / kTileMultiple * kTileMultiple;
    rows = half >= least ? half : left;
  }
  rows = std::min(rows, left);
  Work work{.kind = Work::Kind::kRows, .jobs = {entry->job}, .entry = entry};
  work.begin = entry->next_row;
  work.end = entry->next_row + rows;
  work.predicted = rows == left ? entry->cost : std::min(entry->cost, nanoseconds(row_ns * rows));
  HandOut(entry, work.predicted);
  entry->next_row = work.end;
  ++entry->running;
  if (entry->next_row == entry->rows) Erase(entry);
  return work;
}

void JobQueue::ChargeExcess(const Work& work, nanoseconds took) {
  const nanoseconds excess = took - work.predicted;
  if (excess < options_.tile) return;
  const auto rows = static_cast<double>(work.others.empty() ? work.entry->rows : work.end);
  const auto charge = [&](Entry* entry) {
    const double part = static_cast<double>(entry->rows) / rows;
    Charge(*entry, nanoseconds(static_cast<int64_t>(static_cast<double>(excess.count()) * part)));
  };
  charge(work.entry);
  for (Entry* entry : work.others) charge(entry);
}

JobQueue::Work JobQueue::Done(const Work& work, bool alive, nanoseconds took,
                              std::vector<Dropped>& dropped) {
  Entry* entry = work.entry;
  --entry->running;
  running_work_ -= work.predicted;
  ChargeExcess(work, took);
  if (work.kind == Work::Kind::kTogether || work.kind == Work::Kind::kEnd || !alive) {
    for (Entry* other : work.others) Forget(other);
    Forget(entry);
    return {};
  }
  if (work.kind == Work::Kind::kBegin) {
    entry->ready = true;
    entry->held_bytes = entry->job->held_bytes();
    entry->lane->held_bytes_ += entry->held_bytes;
    Insert(entry);
    return {};
  }
  if (entry->running > 0) return {};
  if (!entry->given_up.ok()) {
    dropped.push_back({entry->job, entry->given_up});
    Forget(entry);
    return {};
  }
  if (entry->next_row < entry->rows) return {};
  ++entry->running;
  return {.kind = Work::Kind::kEnd, .jobs = {entry->job}, .entry = entry};
}

}  // namespace ulfd::server
