// SPDX-License-Identifier: Apache-2.0
#include "server/services/health_service.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/refusal.h"
#include "server/system/peer.h"

namespace ulfd::server {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

// No service and no model has a longer name.  A watch keeps its name.
constexpr size_t kMaxNameBytes = 1024;

grpc::Status TooMany(absl::string_view what) {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, absl::StrCat("health: ", what)};
}

}  // namespace

// One stream, or one that is to come.  Writes one status at a time; of those that come in between,
// only the last one is sent.
class HealthService::Watcher final : public RpcCall {
 public:
  // Waits for one stream; each that comes waits for the next one.
  static void Await(HealthService& service, CallReceiver& receiver) {
    if (!receiver.Enter()) return;
    auto* watcher = new Watcher(service, receiver);
    static const int index = MethodIndex(service.full_name(), "Watch");
    service.methods_.RequestAsyncServerStreaming(index, &watcher->context(), &watcher->bytes_,
                                                 &watcher->writer_, receiver.queue(),
                                                 receiver.queue(), watcher->received());
  }

  const std::string& name() const { return request_.service(); }
  const std::string& address() const { return address_; }

  // Sends the status unless it is the one sent last.
  void Notify(ServingStatus status) {
    MutexLock lock(mu_);
    wanted_ = status;
    MaybeWrite();
  }
  // Ends the stream, unless it has ended.
  void Finish(const grpc::Status& status) override {
    MutexLock lock(mu_);
    if (finished_) return;
    finished_ = true;
    writer_.Finish(status, finished());
  }

 private:
  Watcher(HealthService& service, CallReceiver& receiver)
      : RpcCall(receiver), service_(service), writer_(&context()) {}

  void Answer() override {
    static const MessageScan scan(*HealthCheckRequest::descriptor());
    const grpc::Status read = Read(bytes_, scan, request_);
    bytes_.Clear();
    Forget();
    if (!read.ok()) return Finish(read);
    if (name().size() > kMaxNameBytes) {
      return Finish({grpc::StatusCode::INVALID_ARGUMENT,
                     absl::StrCat("health: the service has a name of ", name().size(),
                                  " bytes, want at most ", kMaxNameBytes)});
    }
    address_ = AddressOf(peer());
    service_.Add(this);
  }
  void AwaitNext() override { Await(service_, receiver()); }
  void Closed() override { Finish(Gone()); }
  void Over() override { service_.Remove(this); }
  void OnWritten(bool ok) {
    if (!ok) Finish(Gone());
    {
      MutexLock lock(mu_);
      writing_ = false;
      MaybeWrite();
    }
    StepEnded();
  }

  static grpc::Status Gone() {
    return grpc::Status(grpc::StatusCode::CANCELLED, "the watcher went away");
  }
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_ || writing_ || sent_ == static_cast<int>(wanted_)) return;
    writing_ = true;
    sent_ = static_cast<int>(wanted_);
    HealthCheckResponse message;
    message.set_status(wanted_);
    StepBegun();
    writer_.Write(message, static_cast<CallEvent*>(&written_));
  }

  HealthService& service_;
  grpc::ByteBuffer bytes_;
  HealthCheckRequest request_;
  std::string address_;
  grpc::ServerAsyncWriter<HealthCheckResponse> writer_;
  StepEvent<Watcher, &Watcher::OnWritten> written_{*this};

  Mutex mu_;
  ServingStatus wanted_ ABSL_GUARDED_BY(mu_) = HealthCheckResponse::UNKNOWN;
  int sent_ ABSL_GUARDED_BY(mu_) = -1;  // A ServingStatus, or nothing yet.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

HealthService::HealthService(const ModelLookup& models, const Readiness& readiness,
                             std::vector<std::string> services)
    : models_(models), readiness_(readiness), services_(std::move(services)) {}

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) const {
  const auto status = [](bool serving) {
    return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  };
  if (service.empty() || absl::c_linear_search(services_, service)) {
    return status(readiness_.ServerReady());
  }
  absl::string_view name = service;
  if (!absl::ConsumePrefix(&name, "model/")) return HealthCheckResponse::SERVICE_UNKNOWN;
  // To be told even where there is no memory to look further.
  if (readiness_.draining()) return HealthCheckResponse::NOT_SERVING;
  const std::vector<ModelStatus> models = models_.List(std::string(name));
  if (name.empty() || models.empty()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return status(absl::c_any_of(
      models[0].versions, [](const VersionStatus& version) { return version.serving != nullptr; }));
}

void HealthService::Refresh() {
  MutexLock lock(mu_);
  for (Watcher* watcher : watchers_) {
    // Without memory to look, it keeps what it was told last.
    WithinMemory([&] { watcher->Notify(StatusOf(watcher->name())); }).IgnoreError();
  }
}

void HealthService::EndWatches() {
  MutexLock lock(mu_);
  ended_ = true;
  for (Watcher* watcher : watchers_) {
    watcher->Finish(ToGrpcStatus(ShuttingDown()));
  }
}

void HealthService::Remove(Watcher* watcher) {
  MutexLock lock(mu_);
  if (watchers_.erase(watcher) > 0) Uncount(*watcher);
}

void HealthService::Uncount(const Watcher& watcher) {
  const auto remove = [](std::map<std::string, int>& counts, const std::string& key) {
    const auto it = counts.find(key);
    if (--it->second == 0) counts.erase(it);
  };
  remove(of_connection_, watcher.peer());
  remove(of_address_, watcher.address());
}

bool HealthService::MakeRoom(const std::string& address) {
  const auto most =
      std::max_element(of_address_.begin(), of_address_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto own = of_address_.find(address);
  const int has = own == of_address_.end() ? 0 : own->second;
  if (most == of_address_.end() || most->second <= has + 1) return false;
  const grpc::Status status = TooMany("others have fewer watches");
  for (Watcher* watcher : watchers_) {
    if (watcher->address() != most->first) continue;
    watchers_.erase(watcher);
    Uncount(*watcher);
    watcher->Finish(status);
    return true;
  }
  return false;
}

void HealthService::AwaitCalls(CallReceiver& receiver) {
  Await(receiver, "Check", &HealthService::Check);
  for (int i = 0; i < kAwaitedCalls; ++i) Watcher::Await(*this, receiver);
}

void HealthService::Check(UnaryCall<HealthCheckRequest, HealthCheckResponse>& call) {
  const std::string& service = call.request().service();
  const ServingStatus status = StatusOf(service);
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    return call.Finish(ToGrpcStatus(NotFound("health: unknown service \"", service, "\"")));
  }
  call.response().set_status(status);
  call.Finish(grpc::Status::OK);
}

void HealthService::Add(Watcher* watcher) {
  MutexLock lock(mu_);
  if (ended_) {
    watcher->Finish(ToGrpcStatus(ShuttingDown()));
  } else if (!SharesPeer(watcher->peer()) && of_connection_.count(watcher->peer()) > 0 &&
             of_connection_[watcher->peer()] >= kMaxOfConnection) {
    watcher->Finish(TooMany(absl::StrCat(kMaxOfConnection, " watches on this connection already")));
  } else if (watchers_.size() >= kMaxWatches && !MakeRoom(watcher->address())) {
    watcher->Finish(TooMany(absl::StrCat(kMaxWatches, " watches are open already")));
  } else {
    // What may find no memory comes before what Uncount takes back.
    const ServingStatus status = StatusOf(watcher->name());
    int& of_connection = of_connection_[watcher->peer()];
    int& of_address = of_address_[watcher->address()];
    watchers_.insert(watcher);
    ++of_connection;
    ++of_address;
    watcher->Notify(status);
  }
}

}  // namespace ulfd::server
