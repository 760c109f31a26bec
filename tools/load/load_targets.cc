// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_targets.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/health.grpc.pb.h"

namespace ulfd::tools {
namespace {

using grpc::health::v1::HealthCheckResponse;

// Reconnects soon: what happens after a restart is part of what is measured.
grpc::ChannelArguments QuickReconnects() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // How long one attempt may take, TLS handshake included.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Without this, channels to one address share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

LoadTargets::LoadTargets(LoadTargetsOptions options) : options_(std::move(options)) {
  for (const std::string& address : options_.addresses) {
    auto target = std::make_unique<Target>();
    target->address = address;
    for (int i = 0; i < options_.channels; ++i) {
      target->connections.push_back(options_.connector.Connect(address, QuickReconnects()));
      const auto& channel = target->connections.back().channel();
      channel->GetState(/*try_to_connect=*/true);
      target->stubs.push_back(std::make_unique<grpc::GenericStub>(channel));
    }
    target->serving = !options_.follow_health;
    targets_.push_back(std::move(target));
  }
  if (!options_.follow_health) return;
  for (const auto& target : targets_) {
    target->watcher = std::thread([this, t = target.get()] { Watch(*t); });
  }
}

LoadTargets::~LoadTargets() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    for (grpc::ClientContext* watch : watches_) watch->TryCancel();
    changed_.NotifyAll();
  }
  for (const auto& target : targets_) {
    if (target->watcher.joinable()) target->watcher.join();
  }
}

void LoadTargets::SetServing(Target& target, bool serving) {
  const bool before = target.serving.exchange(serving);
  if (before == serving) return;
  if (before) target.left.fetch_add(1);
  MutexLock lock(mu_);
  changed_.NotifyAll();
}

bool LoadTargets::WatchOnce(Target& target) {
  const Connection server = options_.connector.Connect(target.address, QuickReconnects());
  const auto stub = grpc::health::v1::Health::NewStub(server.channel());
  grpc::ClientContext context;
  server.Prepare(context, absl::InfiniteDuration());
  {
    MutexLock lock(mu_);
    if (stopping_) return true;
    watches_.push_back(&context);
  }
  const auto stream = stub->Watch(&context, {});
  HealthCheckResponse response;
  while (stream->Read(&response)) {
    SetServing(target, response.status() == HealthCheckResponse::SERVING);
  }
  const grpc::Status status = stream->Finish();
  MutexLock lock(mu_);
  watches_.erase(std::find(watches_.begin(), watches_.end(), &context));
  return status.error_code() != grpc::StatusCode::UNIMPLEMENTED;
}

void LoadTargets::Watch(Target& target) {
  while (true) {
    if (!WatchOnce(target)) {
      target.without_health = true;
      SetServing(target, true);
      return;
    }
    // Whoever does not answer does not serve.
    SetServing(target, false);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    MutexLock lock(mu_);
    while (!stopping_ && std::chrono::steady_clock::now() < until) changed_.WaitUntil(mu_, until);
    if (stopping_) return;
  }
}

int LoadTargets::Pick() {
  const auto count = static_cast<uint32_t>(targets_.size());
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t target = next_target_.fetch_add(1, std::memory_order_relaxed) % count;
    if (targets_[target]->serving.load(std::memory_order_relaxed)) return static_cast<int>(target);
  }
  return -1;
}

grpc::GenericStub& LoadTargets::StubOf(int target) {
  Target& t = *targets_[static_cast<size_t>(target)];
  const uint32_t turn = t.next_stub.fetch_add(1, std::memory_order_relaxed);
  return *t.stubs[turn % t.stubs.size()];
}

bool LoadTargets::WaitUntilServing(std::chrono::steady_clock::time_point deadline) {
  const auto serves = [](const std::unique_ptr<Target>& target) { return target->serving.load(); };
  MutexLock lock(mu_);
  while (std::none_of(targets_.begin(), targets_.end(), serves)) {
    if (!changed_.WaitUntil(mu_, deadline) && std::chrono::steady_clock::now() >= deadline) {
      return std::any_of(targets_.begin(), targets_.end(), serves);
    }
  }
  return true;
}

}  // namespace ulfd::tools
