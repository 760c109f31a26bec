// SPDX-License-Identifier: Apache-2.0
#include "server/models/reaper.h"

#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "server/system/memory_release.h"
#include "server/system/threads.h"

namespace ulfd::server {
struct Reaper::State {
  // One model, allocated with the handle so that queueing it needs no memory.
  struct Node {
    std::unique_ptr<const ServedModel> model;
    Node* next = nullptr;
  };

  using Pieces = absl::flat_hash_set<const void*>;

  // What the model holds now; that may change as it serves.
  void Hold(const engine::Model& model) {
    MutexLock lock(pieces_mu);
    Pieces& of_model = held_by[&model];
    const Pieces before = std::exchange(of_model, {});
    for (const auto& [piece, bytes] : model.MemoryPieces()) {
      auto& [holders, held] = pieces[piece];
      if (of_model.insert(piece).second) ++holders;
      held_bytes += bytes - held;
      held = bytes;
    }
    LetGo(before);
  }
  // A holder has the pieces no longer.
  void LetGo(const Pieces& gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pieces_mu) {
    for (const void* const piece : gone) {
      const auto it = pieces.find(piece);
      if (--it->second.first > 0) continue;
      held_bytes -= it->second.second;
      pieces.erase(it);
    }
  }
  Pieces TakePieces(const engine::Model* model) {
    MutexLock lock(pieces_mu);
    auto taken = held_by.extract(model);
    return taken ? std::move(taken.mapped()) : Pieces();
  }
  void Free(Node* node) {
    const Pieces freed = TakePieces(node->model->model.get());
    delete node;
    MutexLock lock(pieces_mu);
    LetGo(freed);
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

  mutable Mutex pieces_mu;
  // By address: how many models hold it, and its bytes.
  absl::flat_hash_map<const void*, std::pair<int, int64_t>> pieces ABSL_GUARDED_BY(pieces_mu);
  absl::flat_hash_map<const engine::Model*, Pieces> held_by ABSL_GUARDED_BY(pieces_mu);
  int64_t held_bytes ABSL_GUARDED_BY(pieces_mu) = 0;
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
  state_->Hold(*node->model->model);
  return ModelHandle(node->model.get(),
                     [node, state = state_](const ServedModel*) { state->Retire(node); });
}

void Reaper::Grew(const engine::Model& model) { state_->Hold(model); }

int64_t Reaper::held_bytes() const {
  MutexLock lock(state_->pieces_mu);
  return state_->held_bytes;
}

int64_t Reaper::BytesBeyondHeld(const engine::Model& model) const {
  MutexLock lock(state_->pieces_mu);
  int64_t beyond = 0;
  for (const auto& [piece, bytes] : model.MemoryPieces()) {
    if (!state_->pieces.contains(piece)) beyond += bytes;
  }
  return beyond;
}

}  // namespace ulfd::server
