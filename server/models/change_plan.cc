// The rules of the admin calls; proto/admin.proto says what they promise.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/change_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "server/models/served_models.h"

namespace ulfd::server {
namespace {

using Outcome = VersionChange::Outcome;

std::string Quoted(const std::string& name) { return absl::StrCat("model \"", name, "\""); }

std::string VersionNumbers(const ModelEntry& entry) {
  std::string numbers = absl::StrJoin(
      entry.versions(), ", ",
      [](std::string* out, const auto& version) { absl::StrAppend(out, version.first); });
  return numbers.empty() ? "none" : numbers;
}

class Planner {
 public:
  Planner(const ModelChange& change, const RepositoryScan& scan, ModelTable::TimePoint now,
          std::chrono::system_clock::time_point wall_now, ModelTable& table)
      : change_(change), scan_(scan), now_(now), wall_now_(wall_now), table_(table) {}

  absl::StatusOr<ChangePlan> Plan() {
    if (change_.kind == ModelChange::Kind::kConfigure) {
      RETURN_IF_ERROR(Configure());
    } else {
      ASSIGN_OR_RETURN(ModelEntry * entry, FindModel());
      plan_.models.push_back({.name = change_.name});
      RETURN_IF_ERROR(ChangeOne(*entry));
    }
    return std::move(plan_);
  }

 private:
  absl::Status ChangeOne(ModelEntry& entry) {
    switch (change_.kind) {
      case ModelChange::Kind::kLoad:
        return Load(entry);
      case ModelChange::Kind::kUnload:
        return Unload(entry);
      case ModelChange::Kind::kSetLabel:
        return SetLabel(entry);
      case ModelChange::Kind::kRollback:
        return Rollback(entry);
      case ModelChange::Kind::kConfigure:
        break;
    }
    return Internal("not a change of one model");
  }

  absl::StatusOr<ModelEntry*> FindModel() {
    // A model or version that came since the last look counts.
    table_.Merge(scan_.Only(change_.name), now_, wall_now_);
    ModelEntry* entry = table_.Find(change_.name);
    if (entry != nullptr) return entry;
    std::vector<absl::string_view> names;
    for (const auto& [name, known] : table_.entries()) {
      if (names.size() < kNamesInMessage) names.push_back(name);
    }
    return UnknownModel(change_.name, names, table_.entries().size());
  }

  // The version must serve what its directory holds when the change is done.
  absl::Status Want(ModelEntry& entry, int64_t version, ModelOutcome& outcome) {
    const VersionWatch* watch = entry.FindWatch(version);
    if (watch == nullptr || (!watch->present() && watch->serving() == nullptr)) {
      return NotFound(Quoted(entry.config().name), " has no version ", version, " in ",
                      entry.config().base_path, "; versions: ", VersionNumbers(entry));
    }
    if (!watch->present() || watch->serves_newest()) {
      outcome.versions.push_back({version, Outcome::kAlreadyServing, absl::OkStatus()});
    } else {
      plan_.goals.push_back({entry.config().name, version});
    }
    return absl::OkStatus();
  }

  absl::Status Load(ModelEntry& entry) {
    std::vector<int64_t> versions;
    if (change_.version.has_value()) {
      versions = {*change_.version};
      entry.Pin(*change_.version, now_);
    } else {
      entry.EndHolds();
      versions = entry.Wanted(now_);
      if (versions.empty()) {
        return NotFound(Quoted(change_.name), " has no version in ", entry.config().base_path);
      }
    }
    for (const int64_t version : versions) {
      Readmit(entry, version);
      if (VersionWatch* watch = entry.FindWatch(version)) watch->EndEpochLimit();
      RETURN_IF_ERROR(Want(entry, version, plan_.models[0]));
    }
    return absl::OkStatus();
  }

  // An operator wants the version: what was held against its content does not count.
  static void Readmit(ModelEntry& entry, int64_t version) {
    entry.quarantine().Release(version);
    if (VersionWatch* watch = entry.FindWatch(version)) watch->Readmit();
  }

  absl::Status CheckUnlabelled(const ModelEntry& entry, int64_t version) const {
    for (const auto& [label, labelled] : entry.config().labels) {
      if (labelled != version) continue;
      return FailedPrecondition(Quoted(change_.name), ": label \"", label, "\" names version ",
                                version, "; SetLabel moves it or takes it away");
    }
    return absl::OkStatus();
  }

  absl::Status Unload(ModelEntry& entry) {
    if (!change_.version.has_value()) {
      entry.HoldAll();
      return absl::OkStatus();
    }
    const int64_t version = *change_.version;
    const VersionWatch* watch = entry.FindWatch(version);
    if (watch == nullptr) {
      return NotFound(Quoted(change_.name), " has no version ", version,
                      "; versions: ", VersionNumbers(entry));
    }
    RETURN_IF_ERROR(CheckUnlabelled(entry, version));
    const auto& all = entry.versions();
    const bool others = std::any_of(all.begin(), all.end(), [&](const auto& other) {
      return other.first != version && other.second.serving() != nullptr;
    });
    if (watch->serving() != nullptr && !others) {
      return FailedPrecondition(
          Quoted(change_.name), ": version ", version,
          " is the only one that serves; Rollback goes to another one, and UnloadModel without a "
          "version unloads the model");
    }
    entry.Hold(version);
    return absl::OkStatus();
  }

  absl::Status SetLabel(ModelEntry& entry) {
    const std::map<std::string, int64_t>& labels = entry.config().labels;
    const auto before = labels.find(change_.label);
    if (before != labels.end()) plan_.from_version = before->second;
    if (!change_.version.has_value()) {
      if (before != labels.end()) {
        entry.RemoveLabel(change_.label);
        return absl::OkStatus();
      }
      return NotFound(Quoted(change_.name), " has no label \"", change_.label, "\"");
    }
    entry.EndHold(*change_.version);
    entry.SetLabel(change_.label, *change_.version);
    return Want(entry, *change_.version, plan_.models[0]);
  }

  absl::Status Rollback(ModelEntry& entry) {
    const ServedVersions served = entry.Served();
    const ModelHandle* present = served.Default();
    if (present == nullptr) {
      return FailedPrecondition(Quoted(change_.name),
                                " serves nothing that one could roll back from");
    }
    const int64_t from = (*present)->version;
    if (change_.epoch.has_value()) return GoToEpoch(entry, from);
    const std::optional<int64_t> to = change_.version ? change_.version : entry.Previous();
    if (!to.has_value()) {
      return FailedPrecondition(Quoted(change_.name), ": no version to go back to from ", from,
                                "; versions: ", VersionNumbers(entry));
    }
    plan_.from_version = from;
    plan_.to_version = to;
    entry.EndHold(*to);
    Readmit(entry, *to);
    if (entry.config().labels.contains(kStableLabel)) {
      entry.SetLabel(kStableLabel, *to);
      return Want(entry, *to, plan_.models[0]);
    }
    if (*to >= from) {
      return FailedPrecondition(
          Quoted(change_.name), ": version ", *to, " is not below ", from,
          ", which serves; without the label \"stable\" a roll-back can only go down");
    }
    std::vector<int64_t> above;
    for (const auto& [version, watch] : entry.versions()) {
      if (version > *to) above.push_back(version);
    }
    for (const int64_t version : above) {
      RETURN_IF_ERROR(CheckUnlabelled(entry, version));
      entry.Unpin(version);
      entry.watch(version).Reject(FailedPrecondition(
          "rolled back to version ", *to,
          " by an operator; not served again until its content changes or LoadModel "
          "asks for it"));
      plan_.rejected.push_back({change_.name, version});
    }
    entry.Pin(*to, now_);
    return Want(entry, *to, plan_.models[0]);
  }

  // `present`: the version that requests get.
  absl::Status GoToEpoch(ModelEntry& entry, int64_t present) {
    const int64_t version = change_.version.value_or(present), epoch = *change_.epoch;
    plan_.from_version = plan_.to_version = version;
    VersionWatch* watch = entry.FindWatch(version);
    if (watch == nullptr || watch->serving() == nullptr) {
      return FailedPrecondition(Quoted(change_.name), ": version ", version, " does not serve");
    }
    watch->LimitEpoch(epoch);
    const std::vector<engine::EpochMark> wanted = watch->WantedEpochs();
    if (epoch != 0 && (wanted.empty() || wanted.back().epoch != epoch)) {
      return NotFound(Quoted(change_.name), " v", version, ": no epoch ", epoch,
                      " in its directory");
    }
    return Want(entry, version, plan_.models[0]);
  }

  absl::Status Configure() {
    if (!scan_.repository.ok()) return scan_.repository;
    table_.set_default_policy(change_.default_policy);
    std::map<std::string, std::pair<ModelConfig, bool>> wanted;  // And whether it is in the file.
    for (const std::string& name : scan_.found) wanted[name] = {table_.FoundConfig(name), false};
    for (const ModelConfig& model : change_.models) wanted[model.name] = {model, true};

    std::vector<std::string> gone;
    for (const auto& [name, entry] : table_.entries()) {
      // What is not in the file but was found once goes by the rules of the repository.
      if (entry.configured() && !wanted.contains(name)) gone.push_back(name);
    }
    for (const std::string& name : gone) {
      table_.Erase(name, plan_.withdrawn);
      plan_.models.push_back({.name = name, .removed = true});
    }
    for (const auto& [name, config] : wanted) ConfigureOne(config.first, config.second);
    std::sort(plan_.models.begin(), plan_.models.end(),
              [](const ModelOutcome& a, const ModelOutcome& b) { return a.name < b.name; });
    return absl::OkStatus();
  }

  void ConfigureOne(const ModelConfig& config, bool configured) {
    ModelEntry* entry = table_.Find(config.name);
    if (entry == nullptr && !configured) return;  // The next look finds it.
    std::set<int64_t> before, named_before;
    if (entry != nullptr && entry->configured() == configured && !entry->Differs(config)) return;
    if (entry == nullptr || entry->config().base_path != config.base_path) {
      entry = &table_.Replace(config, configured, plan_.withdrawn);
    } else {
      for (const int64_t version : entry->Wanted(now_)) {
        before.insert(version);
        if (entry->Named(version)) named_before.insert(version);
      }
      entry->Reconfigure(config, configured);
    }
    entry->Update(scan_.models.at(config.name), now_, wall_now_);
    ModelOutcome outcome{.name = config.name};
    const std::vector<int64_t> versions = entry->Wanted(now_);
    if (versions.empty() && config.required) {
      outcome.error = NotFound(Quoted(config.name), " has no version in ", config.base_path);
    }
    for (const int64_t version : versions) {
      const VersionWatch* watch = entry->FindWatch(version);
      // What did not serve before either must not stand in the way of the change, which may be an
      // emergency; nor may what is known to be bad, where the policy has something else to serve.
      const bool serves_newest = watch != nullptr && watch->serves_newest();
      const bool asked_before =
          before.contains(version) && (!entry->Named(version) || named_before.contains(version));
      const bool known_bad = watch != nullptr && watch->refused() &&
                             config.policy.specific.empty() && !entry->Named(version);
      if (entry->serves() && ((asked_before && !serves_newest) || known_bad)) continue;
      const absl::Status error = Want(*entry, version, outcome);
      if (outcome.error.ok()) outcome.error = error;
    }
    plan_.models.push_back(std::move(outcome));
  }

  const ModelChange& change_;
  const RepositoryScan& scan_;
  const ModelTable::TimePoint now_;
  const std::chrono::system_clock::time_point wall_now_;
  ModelTable& table_;
  ChangePlan plan_;
};

}  // namespace

absl::StatusOr<ChangePlan> PlanChange(const ModelChange& change, const RepositoryScan& scan,
                                      ModelTable::TimePoint now,
                                      std::chrono::system_clock::time_point wall_now,
                                      ModelTable& table) {
  return Planner(change, scan, now, wall_now, table).Plan();
}

}  // namespace ulfd::server
