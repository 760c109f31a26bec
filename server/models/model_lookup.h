// ModelLookup: what is served now.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_LOOKUP_H_
#define ULFD_SERVER_MODELS_MODEL_LOOKUP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/models/model_types.h"

namespace ulfd::server {

// Thread-safe; takes no lock that a load holds.
class ModelLookup {
 public:
  virtual ~ModelLookup() = default;

  // The model that a request wants.  Any thread; takes no lock that a load holds.
  // PERMISSION_DENIED if choice.client may not use the model, by the rules that were published
  // together with what would be found; NOT_FOUND names what is unknown (model, version, label) and
  // what exists; UNAVAILABLE if the model is known but nothing of it is published yet.
  virtual absl::StatusOr<ModelHandle> Find(const ModelChoice& choice) const = 0;
  // The version that shadows the model, if it is configured and published.  Any thread; as cheap as
  // Find.
  virtual std::optional<ShadowTarget> FindShadow(const std::string& name) const = 0;
  // PERMISSION_DENIED if choice.client may not use the model, whether it is there or not.
  virtual absl::Status CheckAccess(const ModelChoice& choice) const = 0;
  // Every model and version known, sorted; with a name that model alone, if it is known.
  virtual std::vector<ModelStatus> List(const std::string& name = "") const = 0;
  // Versions of the model that serve, ascending.
  virtual std::vector<int64_t> VersionsOf(const std::string& name) const = 0;
  // Labels that name this version of the model.
  virtual std::vector<std::string> LabelsOf(const std::string& name, int64_t version) const = 0;
  // True while a model can be called (without version and label), once every required one could and
  // the first load of every other one had ended, well or badly.
  virtual bool Ready() const = 0;
  // A model that serves wants plans (engine::Model::WantsPlans): they are made in the background,
  // when nothing is to be loaded.  Any thread; as cheap as Find.
  virtual void PlansWanted() const = 0;
  // Publications so far.
  virtual int64_t generation() const = 0;
  // Grows with every change of what Find says, refused loads and operators' changes included.
  virtual int64_t changes() const = 0;
};

// The model that was asked for, unless that cannot be told.
inline absl::StatusOr<ModelHandle> FindModel(const ModelLookup& models,
                                             const absl::StatusOr<ModelChoice>& choice) {
  if (!choice.ok()) return choice.status();
  return models.Find(*choice);
}

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_LOOKUP_H_
