// ModelObserver: hears what the model manager does.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_OBSERVER_H_
#define ULFD_SERVER_MODELS_MODEL_OBSERVER_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/models/model_types.h"

namespace ulfd::server {

// What the manager reports as it happens; called from its threads (or from Poll), possibly at the
// same time, never with a lock held.  Must outlive the manager.
class ModelObserver {
 public:
  virtual ~ModelObserver() = default;
  virtual void OnPublished(const ServedModel& model, std::chrono::nanoseconds load_time) {}
  // reason: a word of engine::LoadReason, for a metric label; error: the whole text.
  virtual void OnLoadFailed(const std::string& name, int64_t version, absl::string_view reason,
                            const absl::Status& error) {}
  // One published content is gone: withdrawn or replaced, dropped by its last request, and freed.
  virtual void OnUnloaded(const std::string& name, int64_t version, int64_t generation) {}
  // After every publication, when a model goes away, and at the end of the first poll: whether each
  // model can be called, and the whole.
  virtual void OnReadinessChanged() {}
  // A plan for shapes that requests showed was made, or refused.
  virtual void OnShapePlan(const std::string& name, int64_t version,
                           const engine::ShapePlanInfo& plan) {}
  // Something an operator should read that stops nothing.  `name` is empty and `version` 0 if it
  // concerns the repository.
  virtual void OnNotice(const std::string& name, int64_t version, const std::string& notice) {}
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_OBSERVER_H_
