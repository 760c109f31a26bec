// Frees models on a thread of its own, so that no request pays for it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_REAPER_H_
#define ULFD_SERVER_MODELS_REAPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/models/model_types.h"

namespace ulfd::server {

class Reaper {
 public:
  // Called on the reaper's thread after a model's memory is free.
  using OnFreed = std::function<void(const std::string& name, int64_t version, int64_t generation)>;
  explicit Reaper(OnFreed on_freed);
  // Frees what is queued and ends the thread.  A handle may outlive the reaper: its model is then
  // freed by whoever drops it, without OnFreed.
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // A handle whose last drop queues the model: it takes a short lock, allocates nothing, frees
  // nothing.  After each batch the C library is told to give memory back (malloc_trim), except
  // under jemalloc, which does so by itself.
  ModelHandle Own(std::unique_ptr<const ServedModel> model);

  // The model, which is owned and of which the caller has a handle, holds more or less than before.
  void Grew(const engine::Model& model);

  // Memory of all models that were owned and are not freed yet; what several share counts once.
  // Unit: bytes.
  int64_t held_bytes() const;
  // What the model holds beside that.
  int64_t BytesBeyondHeld(const engine::Model& model) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // Shared with the thread and with every handle.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_REAPER_H_
