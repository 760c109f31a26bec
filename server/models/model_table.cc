// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ulfd::server {

using std::chrono::system_clock;

ModelTable::ModelTable(const ModelManagerOptions& options)
    : repository_(options.repository),
      default_policy_(options.default_policy),
      default_clients_(options.default_clients),
      found_required_(options.found_required),
      watch_{options.settle_time, options.retry_backoff},
      states_(options.operator_states) {
  for (const ModelConfig& model : options.models) Add(model, /*configured=*/true);
}

ModelEntry& ModelTable::Add(const ModelConfig& config, bool configured) {
  ModelEntry& entry = entries_.try_emplace(config.name, config, configured, watch_).first->second;
  const auto state = states_.find(config.name);
  if (state == states_.end()) return entry;
  entry.Restore(state->second);
  states_.erase(state);
  return entry;
}

OperatorStates ModelTable::operator_states() const {
  OperatorStates states = states_;
  for (const auto& [name, entry] : entries_) {
    OperatorState state = entry.operator_state();
    if (!state.empty()) states[name] = std::move(state);
  }
  return states;
}

ModelPlaces ModelTable::Places() const {
  ModelPlaces places;
  for (const auto& [name, entry] : entries_) {
    places[name] = {entry.config().base_path, entry.NamedVersions()};
  }
  return places;
}

ModelConfig ModelTable::FoundConfig(const std::string& name) const {
  return {.name = name,
          .base_path = absl::StrCat(repository_, "/", name),
          .policy = default_policy_,
          .required = found_required_};
}

void ModelTable::Merge(const RepositoryScan& scan, TimePoint now,
                       system_clock::time_point wall_now) {
  for (const std::string& name : scan.found) {
    if (entries_.contains(name)) continue;
    Add(FoundConfig(name), /*configured=*/false);
  }
  for (const auto& [name, model] : scan.models) {
    const auto entry = entries_.find(name);
    if (entry == entries_.end()) continue;  // Forgotten by the loader since the scan began.
    // With the whole repository out of reach, a model that is not there says nothing.
    if (!scan.repository.ok() &&
        absl::StartsWith(entry->second.config().base_path, repository_ + "/")) {
      entry->second.Unreadable(scan.repository);
    } else {
      entry->second.Update(model, now, wall_now);
    }
  }
}

ModelTable::Unreadables ModelTable::Unreadable() const {
  Unreadables found;
  for (const auto& [name, entry] : entries_) {
    if (!entry.unreadable().ok()) found[{name, 0}] = entry.unreadable();
    for (const auto& [version, watch] : entry.versions()) {
      if (!watch.unreadable().ok()) found[{name, version}] = watch.unreadable();
    }
  }
  return found;
}

std::map<std::string, std::string> ModelTable::LeftOut() const {
  std::map<std::string, std::string> left_out;
  for (const auto& [name, entry] : entries_) {
    if (!entry.left_out().empty()) left_out[name] = entry.left_out();
  }
  return left_out;
}

LoadJob ModelTable::JobFor(const std::string& name, int64_t version) {
  ModelEntry& entry = entries_.at(name);
  LoadJob job{.name = name,
              .version = version,
              .directory = absl::StrCat(entry.config().base_path, "/", version),
              .fingerprint = entry.watch(version).fingerprint(),
              .quarantine = entry.quarantine(),
              .named = entry.Named(version),
              .limits = entry.config().limits};
  if (entry.config().canary.has_value()) job.canary_feature = entry.config().canary->feature;
  const VersionWatch& of_job = entry.watch(version);
  if (of_job.ServesBase()) job.base = of_job.serving();
  job.epochs = job.base != nullptr ? of_job.DueEpochs() : of_job.WantedEpochs();
  for (const auto& [number, watch] : entry.versions()) {
    const ModelHandle& served = watch.serving();
    if (served == nullptr) continue;
    // The contents of one model cost about the same, and are asked for the same shapes.
    job.cost = served->lane->cost().parts();
    job.before = served;
    if (served->file_bytes == 0) continue;
    job.shared_bytes = std::max(job.shared_bytes, served->model->info().table_bytes);
    job.bytes_per_file_byte = static_cast<double>(served->model->info().memory_bytes) /
                              static_cast<double>(served->file_bytes);
  }
  return job;
}

std::optional<LoadJob> ModelTable::NextJob(TimePoint now) {
  const std::string* best = nullptr;
  int64_t best_version = 0;
  bool best_serves = false;
  for (const auto& [name, entry] : entries_) {
    const std::optional<int64_t> version = entry.NextToLoad(now);
    if (!version.has_value()) continue;
    const bool serves = entry.serves();
    if (best != nullptr && (serves || !best_serves)) continue;
    best = &name;
    best_version = *version;
    best_serves = serves;
  }
  if (best == nullptr) return std::nullopt;
  entries_.at(*best).watch(best_version).LoadStarted();
  return JobFor(*best, best_version);
}

std::optional<ModelTable::TimePoint> ModelTable::NextDueAt(TimePoint now) const {
  std::optional<TimePoint> due;
  for (const auto& [name, entry] : entries_) {
    const auto at = entry.NextDueAt(now);
    if (at.has_value() && (!due.has_value() || *at < *due)) due = at;
  }
  return due;
}

std::vector<std::string> ModelTable::Unfinished(TimePoint now) const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    const std::optional<int64_t> version = entry.Loading();
    const std::optional<int64_t> next = version.has_value() ? version : entry.NextToLoad(now);
    if (next.has_value()) names.push_back(absl::StrCat("model \"", name, "\" v", *next));
  }
  return names;
}

ModelEntry* ModelTable::Find(const std::string& name) {
  const auto entry = entries_.find(name);
  return entry == entries_.end() ? nullptr : &entry->second;
}

VersionWatch* ModelTable::FindWatch(const std::string& name, int64_t version) {
  ModelEntry* entry = Find(name);
  return entry == nullptr ? nullptr : entry->FindWatch(version);
}

void ModelTable::Refused(const LoadJob& job, const LoadOutcome& outcome, TimePoint now) {
  ModelEntry* entry = Find(job.name);
  VersionWatch* watch = FindWatch(job.name, job.version);
  if (watch == nullptr) return;  // A change took the model away meanwhile.
  const auto age = [&] { return system_clock::now() - outcome.state->newest_change; };
  switch (outcome.kind) {
    case LoadOutcome::Kind::kRefused:
      if (!outcome.refused_epochs.empty()) return watch->EpochsRefused(outcome.refused_epochs, now);
      watch->Refused(job.fingerprint, outcome.error, now);
      if (outcome.quarantined.has_value() && job.fingerprint == watch->fingerprint()) {
        watch->Quarantined(*outcome.quarantined);
        if (outcome.quarantined->by_operator) watch->Reject(outcome.error);
        if (!outcome.known_bad) entry->quarantine().Add(*outcome.quarantined);
      }
      return;
    case LoadOutcome::Kind::kChanged:
      if (outcome.state.ok()) {
        watch->ChangedDuringLoad(*outcome.state, now, age(), outcome.error);
        return;
      }
      break;
    case LoadOutcome::Kind::kMoved:
    case LoadOutcome::Kind::kLoaded:
      break;
  }
  watch->LoadAbandoned();
  if (outcome.state.ok()) {
    watch->Seen(*outcome.state, now, age());
  } else {
    watch->Gone(now);
  }
}

void ModelTable::Published(const LoadJob& job, const ModelHandle& handle,
                           const LoadOutcome& outcome, TimePoint now) {
  ModelEntry* entry = Find(job.name);
  VersionWatch* watch = FindWatch(job.name, job.version);
  if (watch == nullptr) return;
  if (watch->serving() != nullptr) entry->Retired(watch->serving());
  watch->Published(job.fingerprint, handle, outcome.content);
  watch->EpochsRefused(outcome.refused_epochs, now);
  entry->quarantine().Release(job.version);
}

void ModelTable::Replaced(const ModelHandle& before, const ModelHandle& after) {
  Find(before->name)->Retired(before);
  FindWatch(before->name, before->version)->Replaced(after);
}

std::shared_ptr<ServedModels> ModelTable::Serve(TimePoint now,
                                                std::vector<ModelHandle>& withdrawn) {
  auto served = std::make_shared<ServedModels>();
  ModelClients clients;
  for (auto it = entries_.begin(); it != entries_.end();) {
    ModelEntry& entry = it->second;
    for (ModelHandle& handle : entry.TakeUnwanted(now)) withdrawn.push_back(std::move(handle));
    if (entry.Forgettable(now)) {
      it = entries_.erase(it);
      continue;
    }
    const ServedVersions& versions = served->models[it->first] = entry.Served();
    if (const ModelHandle* handle = versions.Default()) entry.NoteDefault((*handle)->version);
    const ModelConfig& config = entry.config();
    for (const ModelHandle& handle : versions.versions) handle->lane->SetLimits(config.limits);
    if (!config.allowed_clients.empty()) clients[config.name] = config.allowed_clients;
    ++it;
  }
  served->access = AccessRules(default_clients_, clients);
  return served;
}

ModelTable::Readiness ModelTable::ReadinessOf(const ServedModels& served) const {
  Readiness readiness;
  for (const auto& [name, entry] : entries_) {
    if (!entry.configured() && !entry.has_versions()) continue;
    const bool callable = served.models.at(name).Default() != nullptr;
    readiness.any |= callable;
    if (!callable && (entry.config().required || entry.FirstLoadPending())) {
      readiness.complete = false;
    }
    if (entry.NamedLoadPending()) readiness.complete = false;
    absl::StrAppend(&readiness.callable, name, callable ? "=1;" : "=0;");
  }
  return readiness;
}

std::vector<ModelStatus> ModelTable::List(TimePoint now, const std::string& name) const {
  std::vector<ModelStatus> list;
  const auto only = entries_.equal_range(name);
  const auto first = name.empty() ? entries_.begin() : only.first;
  const auto last = name.empty() ? entries_.end() : only.second;
  for (auto it = first; it != last; ++it) list.push_back(it->second.Status(now));
  return list;
}

std::vector<std::string> ModelTable::LabelsOf(const std::string& name, int64_t version) const {
  std::vector<std::string> labels;
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return labels;
  for (const auto& [label, labelled] : entry->second.config().labels) {
    if (labelled == version) labels.push_back(label);
  }
  return labels;
}

ModelEntry& ModelTable::Replace(const ModelConfig& config, bool configured,
                                std::vector<ModelHandle>& withdrawn) {
  Erase(config.name, withdrawn);
  states_.erase(config.name);
  return Add(config, configured);
}

void ModelTable::Erase(const std::string& name, std::vector<ModelHandle>& withdrawn) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return;
  for (const auto& [version, watch] : entry->second.versions()) {
    if (watch.serving() != nullptr) withdrawn.push_back(watch.serving());
  }
  entries_.erase(entry);
}

}  // namespace ulfd::server
