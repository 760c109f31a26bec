// The reaper's queue and thread.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/reaper.h"

#include <atomic>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "server/system/memory_release.h"
#include "server/system/thread_priority.h"

namespace ulfd::server {
struct Reaper::State {
  // One model, allocated with the handle so that queueing it needs no memory.
  struct Node {
    std::unique_ptr<const ServedModel> model;
    Node* next = nullptr;
  };

  static int64_t BytesOf(const ServedModel& served) {
    return served.model == nullptr ? 0 : served.model->memory_bytes();
  }
  void Free(Node* node) {
    const int64_t bytes = BytesOf(*node->model);
    delete node;
    held_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  }

  // Takes the model over from its last handle.
  void Retire(Node* node) {
    {
      MutexLock lock(mu);
      if (!stopped) {
        node->next = queue;
        queue = node;
        wake.NotifyOne();
        return;
      }
    }
    Free(node);
  }

  void Run() {
    MakeBackgroundThread("ulfd-reaper");
    while (true) {
      Node* batch = nullptr;
      {
        MutexLock lock(mu);
        while (queue == nullptr && !stopped) wake.Wait(mu);
        if (queue == nullptr) return;
        batch = std::exchange(queue, nullptr);
      }
      FreeAll(batch);
      ReleaseFreeMemory();
    }
  }

  void FreeAll(Node* batch) {
    while (batch != nullptr) {
      Node* next = batch->next;
      const std::string name = batch->model->name;
      const int64_t version = batch->model->version, generation = batch->model->generation;
      Free(batch);
      on_freed(name, version, generation);
      batch = next;
    }
  }

  std::atomic<int64_t> held_bytes{0};
  OnFreed on_freed;  // Only used by the thread, which ends before the reaper does.
  Mutex mu;
  CondVar wake;
  Node* queue ABSL_GUARDED_BY(mu) = nullptr;
  bool stopped ABSL_GUARDED_BY(mu) = false;
  std::thread thread;
};

Reaper::Reaper(OnFreed on_freed) : state_(std::make_shared<State>()) {
  state_->on_freed = std::move(on_freed);
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

Reaper::~Reaper() {
  {
    MutexLock lock(state_->mu);
    state_->stopped = true;
    state_->wake.NotifyAll();
  }
  state_->thread.join();
}

ModelHandle Reaper::Own(std::unique_ptr<const ServedModel> model) {
  auto* node = new State::Node{std::move(model)};
  state_->held_bytes.fetch_add(State::BytesOf(*node->model), std::memory_order_relaxed);
  return ModelHandle(node->model.get(),
                     [node, state = state_](const ServedModel*) { state->Retire(node); });
}

void Reaper::Grew(int64_t bytes) { state_->held_bytes.fetch_add(bytes, std::memory_order_relaxed); }

int64_t Reaper::held_bytes() const { return state_->held_bytes.load(std::memory_order_relaxed); }

}  // namespace ulfd::server
