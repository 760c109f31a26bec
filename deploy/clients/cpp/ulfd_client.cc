// SPDX-License-Identifier: Apache-2.0
#include "ulfd_client.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <regex>
#include <tuple>
#include <utility>

#include "proto/health.grpc.pb.h"
#include "proto/predict.grpc.pb.h"

namespace ulfd::client {
namespace {

using Clock = std::chrono::system_clock;  // As gRPC's deadlines.
using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ulfd::v1::PredictRequest;
using ulfd::v1::PredictResponse;

constexpr double kFreeCalls = 4;  // No load worth leaving the user's replica for.
constexpr Milliseconds kLongest{2147483647};
using Micros = std::chrono::microseconds;

grpc::Status Invalid(const std::string& text) {
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, text);
}

Digest Sha256(const std::string& text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

std::string HashOf(const std::string& user_id) {
  if (user_id.empty()) return "";
  const Digest digest = Sha256(user_id);
  std::string text;
  for (int i = 0; i < 8; ++i) {
    for (int digit : {digest[i] >> 4, digest[i] & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

double Random() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>()(generator);
}

grpc::Status CheckTime(const char* name, Milliseconds time, Milliseconds least) {
  if (time >= least && time <= kLongest) return grpc::Status::OK;
  return Invalid(std::string(name) + ": " + std::to_string(time.count()) + " ms, want " +
                 std::to_string(least.count()) + " to " + std::to_string(kLongest.count()));
}

// gRPC ends the process over metadata that HTTP cannot carry.
grpc::Status CheckMetadata(const Options& options) {
  for (char c : options.token) {
    if (c < ' ' || c > '~') return Invalid("token: want printable ASCII");
  }
  const auto legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  const std::string& key = options.user_hash_key;
  if (!key.empty() && std::all_of(key.begin(), key.end(), legal)) return grpc::Status::OK;
  return Invalid("user_hash_key: \"" + key + "\", want lower-case letters, digits, - _ .");
}

bool IsHere(const std::string& target) {
  static const std::regex here(R"(unix:.*|(localhost|127\.\d+\.\d+\.\d+|\[::1\]):\d+)");
  return std::regex_match(target, here);
}

grpc::Status CheckOptions(const std::vector<std::string>& targets, const Options& options) {
  if (targets.empty()) return Invalid("targets: none, want HOST:PORT of every replica");
  for (const std::string& target : targets) {
    if (target.empty()) return Invalid("targets: \"\", want HOST:PORT");
    if (!options.token.empty() && options.credentials == nullptr && !IsHere(target)) {
      return Invalid(
          "token: " + target +
          " is another machine, and without credentials it would go there in plain text");
    }
  }
  for (const grpc::Status& status :
       {CheckTime("timeout", options.timeout, Milliseconds(1)),
        CheckTime("attempt_timeout", options.attempt_timeout, Milliseconds(0)),
        CheckTime("hedge_after", options.hedge_after, kNever), CheckMetadata(options)}) {
    if (!status.ok()) return status;
  }
  if (options.attempts < 1 || options.attempts > 100) {
    return Invalid("attempts: " + std::to_string(options.attempts) + ", want 1 to 100");
  }
  if (!(options.hedge_share > 0 && options.hedge_share <= 1)) {
    return Invalid("hedge_share: " + std::to_string(options.hedge_share) +
                   ", want more than 0 and at most 1");
  }
  if (!(options.load_factor > 1)) {
    return Invalid("load_factor: " + std::to_string(options.load_factor) + ", want more than 1");
  }
  return grpc::Status::OK;
}

grpc::Status CheckCall(const CallOptions& options) {
  const std::string& priority = options.priority;
  if (!priority.empty() && priority != "high" && priority != "normal" && priority != "low") {
    return Invalid("priority: \"" + priority + "\", want high, normal or low");
  }
  return CheckTime("timeout", options.timeout, Milliseconds(0));
}

bool LacksFeatures(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::FAILED_PRECONDITION &&
         status.error_message().find("user_features") != std::string::npos;
}

// When a call is sent to a second replica, too: after a time, and to a share of the calls.
class Hedges {
 public:
  Hedges(Milliseconds after, double share) : after_(after), share_(share) {}

  // None: never.  Once a call.
  std::optional<Micros> Wait(const std::string& model) {
    const std::lock_guard lock(mu_);
    saved_ = std::min(10.0, saved_ + share_);
    if (after_ == kNever) return std::nullopt;
    if (after_ != kP95) return after_;
    std::deque<Micros> times = times_[model];
    if (times.size() < 20) return std::nullopt;
    const auto p95 = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 95 / 100);
    std::nth_element(times.begin(), p95, times.end());
    return *p95;
  }

  bool Take() {
    const std::lock_guard lock(mu_);
    if (saved_ < 1) return false;
    saved_ -= 1;
    return true;
  }

  void Answered(const std::string& model, Micros took) {
    if (after_ != kP95) return;
    const std::lock_guard lock(mu_);
    std::deque<Micros>& times = times_[model];
    times.push_back(took);
    if (times.size() > 200) times.pop_front();
  }

 private:
  const Milliseconds after_;
  const double share_;
  std::mutex mu_;
  double saved_ = 1;  // Guarded by mu_, as times_.
  std::map<std::string, std::deque<Micros>> times_;
};

// One replica, and the call that follows its health for as long as the client lives.
class Replica : public grpc::ClientReadReactor<HealthCheckResponse> {
 public:
  enum class Health { kServing, kUnknown, kNotServing };

  Replica(std::string target, const Options& options)
      : target_(std::move(target)),
        channel_(grpc::CreateChannel(target_, options.credentials == nullptr
                                                  ? grpc::InsecureChannelCredentials()
                                                  : options.credentials)),
        health_stub_(grpc::health::v1::Health::NewStub(channel_)),
        stub_(ulfd::v1::PredictionService::NewStub(channel_)),
        token_(options.token) {
    request_.set_service(options.health_service);
    Follow();
  }

  ~Replica() override {
    std::unique_lock lock(mu_);
    closing_ = true;
    const std::shared_ptr<grpc::ClientContext> context = context_;
    const std::shared_ptr<grpc::Alarm> alarm = alarm_;
    lock.unlock();
    if (context != nullptr) context->TryCancel();
    if (alarm != nullptr) alarm->Cancel();
    lock.lock();
    ended_cv_.wait(lock, [this] { return ended_; });
  }

  const std::string& target() const { return target_; }
  Health health() const { return health_; }
  ulfd::v1::PredictionService::Stub& stub() { return *stub_; }
  std::atomic<int> calls{0};  // Under way.

 private:
  void Follow() {
    {
      const std::lock_guard lock(mu_);
      if (closing_) return End();
      context_ = std::make_shared<grpc::ClientContext>();
      if (!token_.empty()) context_->AddMetadata("authorization", "Bearer " + token_);
    }
    health_stub_->async()->Watch(context_.get(), &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    health_ =
        response_.status() == HealthCheckResponse::SERVING ? Health::kServing : Health::kNotServing;
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    // A proxy without the health service may answer calls all the same.
    health_ = status.error_code() == grpc::StatusCode::UNIMPLEMENTED ? Health::kServing
                                                                     : Health::kUnknown;
    auto alarm = std::make_shared<grpc::Alarm>();
    {
      const std::lock_guard lock(mu_);
      if (closing_) return End();
      alarm_ = alarm;
    }
    // If the destructor cancels it before it is set, it fires at its time.
    alarm->Set(Clock::now() + Milliseconds(500), [this](bool) { Follow(); });
  }

  void End() {  // With mu_.
    ended_ = true;
    ended_cv_.notify_all();
  }

  const std::string target_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_stub_;
  const std::unique_ptr<ulfd::v1::PredictionService::Stub> stub_;
  const std::string token_;
  HealthCheckRequest request_;
  HealthCheckResponse response_;
  std::atomic<Health> health_{Health::kServing};  // Until somebody says otherwise.
  std::mutex mu_;
  bool closing_ = false;  // Guarded by mu_, as what follows.
  bool ended_ = false;
  std::shared_ptr<grpc::ClientContext> context_;
  std::shared_ptr<grpc::Alarm> alarm_;
  std::condition_variable ended_cv_;
};

}  // namespace

// What calls share.  Outlives them.
class Core {
 public:
  Core(const std::vector<std::string>& targets, Options given)
      : options(std::move(given)), hedges(options.hedge_after, options.hedge_share) {
    for (const std::string& target : targets) {
      replicas_.push_back(std::make_unique<Replica>(target, options));
    }
  }

  ~Core() {
    std::unique_lock lock(mu_);
    idle_.wait(lock, [this] { return calls_ == 0; });
  }

  void Count(int more) {
    const std::lock_guard lock(mu_);
    calls_ += more;
    if (calls_ == 0) idle_.notify_all();
  }

  // Those that may be called, best first: another than the last one, one that serves, one that has
  // room, the user's own one (rendezvous hashing: when one goes, only its users move).
  std::vector<Replica*> InOrder(const std::string& key, const Replica* last) const {
    std::vector<Replica*> usable;
    int calls = 1;
    for (const auto& replica : replicas_) {
      if (replica->health() == Replica::Health::kNotServing) continue;
      usable.push_back(replica.get());
      calls += replica->calls;
    }
    const double mean = static_cast<double>(calls) / static_cast<double>(usable.size());
    const double bound = std::max(kFreeCalls, options.load_factor * mean);
    std::vector<std::tuple<bool, bool, bool, Digest, Replica*>> ranked;
    for (Replica* replica : usable) {
      ranked.emplace_back(replica == last, replica->health() == Replica::Health::kUnknown,
                          replica->calls >= bound, Sha256(key + " " + replica->target()), replica);
    }
    std::sort(ranked.begin(), ranked.end());
    for (std::size_t i = 0; i < ranked.size(); ++i) usable[i] = std::get<Replica*>(ranked[i]);
    return usable;
  }

  const Options options;
  Hedges hedges;

 private:
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::mutex mu_;
  int calls_ = 0;  // Guarded by mu_.
  std::condition_variable idle_;
};

namespace {

// One call with its attempts.  Whatever may still happen to it holds a reference.  gRPC is called
// without the lock: it may call back at once.
class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(Core& core, PredictRequest request, CallOptions options, Client::Done done)
      : core_(core),
        whole_(std::move(request)),
        priority_(std::move(options.priority)),
        user_hash_(HashOf(options.user_id)),
        key_(user_hash_.empty() ? std::to_string(Random()) : user_hash_),
        end_(Clock::now() + (options.timeout.count() > 0 ? options.timeout : core.options.timeout)),
        hedge_wait_(core.hedges.Wait(whole_.model().name())),
        left_(core.options.attempts),
        done_(std::move(done)) {
    core_.Count(1);
    if (whole_.user_key().empty() || whole_.user_features().empty()) return;
    google::protobuf::RepeatedPtrField<ulfd::v1::Feature> features;
    features.Swap(whole_.mutable_user_features());
    bare_ = whole_;
    features.Swap(whole_.mutable_user_features());
  }

  ~Call() { core_.Count(-1); }

  void Attempt() {
    std::unique_lock lock(mu_);
    order_ = core_.InOrder(key_, last_);
    begun_ = Clock::now();
    attempt_end_ = end_;
    const Milliseconds timeout = core_.options.attempt_timeout;
    if (timeout.count() > 0) attempt_end_ = std::min(end_, begun_ + timeout);
    if (order_.empty()) {
      lock.unlock();
      const std::string& service = core_.options.health_service;
      return Failed({grpc::StatusCode::UNAVAILABLE,
                     "no replica serves" + (service.empty() ? "" : " " + service)},
                    Milliseconds(10));
    }
    const int round = ++round_;
    const bool hedged = hedge_wait_.has_value() && order_.size() > 1;
    const std::shared_ptr<Rpc> rpc = Add(*order_[0], bare_.has_value());
    lock.unlock();
    if (hedged) {
      SetAlarm(*hedge_wait_, [self = shared_from_this(), round](bool late) {
        if (late) self->Hedge(round);
      });
    }
    Start(rpc);
  }

 private:
  struct Rpc {
    Rpc(Replica& to, bool without_features) : replica(to), bare(without_features) {}
    Replica& replica;
    const bool bare;
    grpc::ClientContext context;
    PredictResponse response;
  };

  std::shared_ptr<Rpc> Add(Replica& replica, bool bare) {  // With mu_.
    rpcs_.push_back(std::make_shared<Rpc>(replica, bare));
    ++open_;
    return rpcs_.back();
  }

  void Start(const std::shared_ptr<Rpc>& rpc) {
    grpc::ClientContext& context = rpc->context;
    const std::string& token = core_.options.token;
    context.set_deadline(attempt_end_);
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    if (!user_hash_.empty()) context.AddMetadata(core_.options.user_hash_key, user_hash_);
    if (!priority_.empty()) context.AddMetadata("ulfd-priority", priority_);
    ++rpc->replica.calls;
    rpc->replica.stub().async()->Predict(&context, rpc->bare ? &*bare_ : &whole_, &rpc->response,
                                         [self = shared_from_this(), rpc](grpc::Status status) {
                                           --rpc->replica.calls;
                                           self->Answered(*rpc, std::move(status));
                                         });
  }

  void Hedge(int round) {
    std::unique_lock lock(mu_);
    if (over_ || round != round_ || open_ == 0 || !core_.hedges.Take()) return;
    const std::shared_ptr<Rpc> rpc = Add(*order_[1], false);
    lock.unlock();
    Start(rpc);
  }

  void Answered(Rpc& rpc, grpc::Status status) {
    const bool lacks = rpc.bare && LacksFeatures(status);
    std::optional<Micros> wait;
    if (!status.ok()) wait = WaitBeforeRetry(status, rpc.context);
    std::unique_lock lock(mu_);
    --open_;
    if (over_) return;                                     // The other one was first.
    if ((lacks || wait.has_value()) && open_ > 0) return;  // The other one may answer.
    if (lacks) bare_.reset();
    lock.unlock();
    if (lacks) return Attempt();
    if (!status.ok()) return Failed(std::move(status), wait);
    core_.hedges.Answered(whole_.model().name(),
                          std::chrono::duration_cast<Micros>(Clock::now() - begun_));
    Finish(std::move(status), std::move(rpc.response));
  }

  // An attempt failed.  wait: before the next one; none: it would not help.
  void Failed(grpc::Status status, std::optional<Micros> wait) {
    std::unique_lock lock(mu_);
    bare_.reset();
    last_ = order_.empty() ? nullptr : order_[0];
    const bool again = --left_ > 0 && wait.has_value() && Clock::now() + *wait < end_;
    lock.unlock();
    if (!again) return Finish(std::move(status), {});
    if (wait->count() == 0) return Attempt();
    SetAlarm(*wait, [self = shared_from_this()](bool) { self->Attempt(); });
  }

  void Finish(grpc::Status status, PredictResponse response) {
    std::unique_lock lock(mu_);
    if (std::exchange(over_, true)) return;
    const std::vector<std::shared_ptr<Rpc>> rpcs = std::move(rpcs_);
    std::shared_ptr<grpc::Alarm> alarm = std::move(alarm_);  // It holds a reference to this.
    lock.unlock();
    alarm.reset();
    for (const std::shared_ptr<Rpc>& rpc : rpcs) rpc->context.TryCancel();
    done_(std::move(status), std::move(response));
  }

  void SetAlarm(Micros wait, std::function<void(bool)> then) {
    const auto alarm = std::make_shared<grpc::Alarm>();
    std::shared_ptr<grpc::Alarm> old = alarm;
    {
      const std::lock_guard lock(mu_);
      alarm_.swap(old);
    }
    alarm->Set(Clock::now() + wait, std::move(then));
  }

  // None where trying again would not help.
  std::optional<Micros> WaitBeforeRetry(const grpc::Status& status,
                                        const grpc::ClientContext& context) const {
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto found = metadata.find("grpc-retry-pushback-ms");
    if (found != metadata.end()) {  // Negative: do not.  A fifth more or less: not all at once.
      const std::string text(found->second.data(), found->second.size());
      if (text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) return {};
      return Micros(
          static_cast<std::int64_t>(1000 * std::atof(text.c_str()) * (1 + 0.2 * Random())));
    }
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return Milliseconds(10);
    const bool of_attempt = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
                            core_.options.attempt_timeout.count() > 0;
    return of_attempt ? std::optional<Micros>(0) : std::nullopt;
  }

  Core& core_;
  PredictRequest whole_;
  const std::string priority_, user_hash_, key_;
  const Clock::time_point end_;
  const std::optional<Micros> hedge_wait_;
  // Of the attempt under way, which nobody changes before it is over.
  std::optional<PredictRequest> bare_;  // Without the user's features: perhaps they are there.
  Clock::time_point begun_, attempt_end_;
  std::mutex mu_;
  // Guarded by mu_.
  std::vector<Replica*> order_;
  Replica* last_ = nullptr;
  int left_;
  int round_ = 0;  // Which attempt this is: a late alarm of another one does nothing.
  int open_ = 0;   // RPCs of this attempt without an answer.
  bool over_ = false;
  std::vector<std::shared_ptr<Rpc>> rpcs_;
  std::shared_ptr<grpc::Alarm> alarm_;
  const Client::Done done_;
};

}  // namespace

grpc::Status Client::Create(const std::vector<std::string>& targets, const Options& options,
                            std::unique_ptr<Client>* client) {
  const grpc::Status status = CheckOptions(targets, options);
  if (status.ok()) client->reset(new Client(std::make_unique<Core>(targets, options)));
  return status;
}

Client::Client(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Client::~Client() = default;

void Client::Predict(PredictRequest request, CallOptions options, Done done) {
  grpc::Status status = CheckCall(options);
  if (!status.ok()) return done(std::move(status), {});
  std::make_shared<Call>(*core_, std::move(request), std::move(options), std::move(done))
      ->Attempt();
}

grpc::Status Client::Predict(PredictRequest request, CallOptions options,
                             PredictResponse* response) {
  const auto answer = std::make_shared<std::promise<std::pair<grpc::Status, PredictResponse>>>();
  Predict(std::move(request), std::move(options),
          [answer](grpc::Status status, PredictResponse came) {
            answer->set_value({std::move(status), std::move(came)});
          });
  auto [status, came] = answer->get_future().get();
  *response = std::move(came);
  return status;
}

}  // namespace ulfd::client
