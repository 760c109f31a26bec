// SPDX-License-Identifier: Apache-2.0
#include "server/models/repository.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/model_version.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/directory_tree.h"

namespace ulfd::server {
namespace {

// Of a repository, and of the versions of a model; each look at them asks for every one.
constexpr int64_t kMaxEntries = 100000;

// Also what cannot be told: who looks into it says why.
bool MayBeDirectory(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return S_ISDIR(info.st_mode);
  return errno != ENOENT && errno != ENOTDIR && errno != ELOOP;
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path,
                                                       int64_t* names_left = nullptr) {
  absl::StatusOr<std::vector<std::string>> names = engine::ListNames(path, kMaxEntries, names_left);
  const absl::Status& listed = names.status();
  if (absl::IsNotFound(listed) || absl::IsFailedPrecondition(listed)) {
    return NotFound("directory ", path, " does not exist");
  }
  if (absl::IsOutOfRange(listed)) return FailedPrecondition(listed.message());
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListModelDirectories(const std::string& repository) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(repository));
  std::erase_if(names, [&](const std::string& name) {
    return name[0] == '.' || name == "lost+found" || Printable(name, name.size()) != name ||
           !MayBeDirectory(absl::StrCat(repository, "/", name));
  });
  return names;
}

absl::StatusOr<VersionList> ListVersions(const std::string& base_path,
                                         const std::set<int64_t>& named, int64_t* names_left) {
  constexpr size_t kMaxIgnored = 20;  // For a message.
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(base_path, names_left));
  VersionList list;
  const auto ignore = [&](const std::string& name) {
    list.ignored_more = list.ignored.size() == kMaxIgnored;
    if (!list.ignored_more) list.ignored.push_back(name);
  };
  std::vector<int64_t> numbers;
  for (const std::string& name : names) {
    const std::optional<int64_t> version = ParseVersion(name);
    if (version.has_value()) {
      numbers.push_back(*version);
    } else {
      ignore(name);
    }
  }
  std::sort(numbers.rbegin(), numbers.rend());
  for (const int64_t version : numbers) {
    if (list.versions.size() >= kMaxVersions && !named.contains(version)) {
      ++list.left_out;
    } else if (MayBeDirectory(absl::StrCat(base_path, "/", version))) {
      list.versions.push_back(version);
    } else {
      ignore(absl::StrCat(version));
    }
  }
  std::reverse(list.versions.begin(), list.versions.end());
  std::sort(list.ignored.begin(), list.ignored.end());
  return list;
}

namespace {

// ListVersions, but NOT_FOUND only where the directory above is there: else a volume may be
// missing, which is no wish to unload.
absl::StatusOr<VersionList> ListVersionsOrWhy(const ModelPlace& place, int64_t* names_left) {
  const std::string& base_path = place.base_path;
  absl::StatusOr<VersionList> list = ListVersions(base_path, place.named, names_left);
  struct stat info;
  const std::string above(base_path, 0, std::max<size_t>(base_path.find_last_of('/') + 1, 1) - 1);
  if (absl::IsNotFound(list.status()) && !above.empty() && stat(above.c_str(), &info) != 0) {
    return Unavailable("directory ", above, " does not exist");
  }
  return list;
}

// One model while it is looked at.
struct ModelLook {
  ModelPlace place;
  int64_t names_left;
  ModelScan* scan;
  engine::DirectoryRules rules;
};

// read(&names), where `names` may still be read of the model and of everything.
template <typename Read>
auto ReadNames(ModelLook& model, int64_t& names_left, Read read) {
  const int64_t most = std::min(model.names_left, names_left);
  int64_t left = most;
  auto result = read(&left);
  model.names_left -= most - left;
  names_left -= most - left;
  return result;
}

// The newest version of each model, then the one before it of each, and so on.
void ScanVersions(std::vector<ModelLook> looks, int64_t names_left) {
  for (size_t age = 0; !looks.empty(); ++age) {
    std::erase_if(looks, [&](const ModelLook& look) {
      return !look.scan->listing.ok() || look.scan->listing->versions.size() <= age;
    });
    for (ModelLook& look : looks) {
      const std::vector<int64_t>& versions = look.scan->listing->versions;
      const int64_t version = versions[versions.size() - 1 - age];
      const std::string path = absl::StrCat(look.place.base_path, "/", version);
      engine::DirectoryRules of_version = VersionRules::OfVersion(path, look.rules);
      look.scan->versions.emplace(version, ReadNames(look, names_left, [&](int64_t* left) {
                                    of_version.names_left = left;
                                    return engine::FingerprintDirectory(path, of_version);
                                  }));
    }
  }
}

}  // namespace

RepositoryScan RepositoryScan::Only(const std::string& name) const {
  RepositoryScan one{.repository = repository};
  if (std::count(found.begin(), found.end(), name) > 0) one.found = {name};
  const auto model = models.find(name);
  if (model != models.end()) one.models.emplace(name, model->second);
  return one;
}

RepositoryScanner::RepositoryScanner(std::string repository, const VersionRules& rules)
    : repository_(std::move(repository)), rules_(rules) {
  struct stat info;
  if (stat(repository_.c_str(), &info) == 0) device_ = info.st_dev;
}

absl::StatusOr<std::vector<std::string>> RepositoryScanner::ListRepository() const {
  if (repository_.empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListModelDirectories(repository_));
  struct stat info;
  if (names.empty() && stat(repository_.c_str(), &info) == 0 && info.st_dev != device_) {
    return Unavailable("model repository ", repository_,
                       " is empty and on another device than at the start: not mounted?");
  }
  return names;
}

RepositoryScan RepositoryScanner::Scan(const ModelPlaces& places,
                                       const std::optional<std::string>& only) const {
  RepositoryScan scan;
  ModelPlaces to_scan = places;
  if (absl::StatusOr<std::vector<std::string>> found = ListRepository(); found.ok()) {
    scan.found = *std::move(found);
  } else {
    scan.repository = found.status();
  }
  for (const std::string& name : scan.found) {
    to_scan.try_emplace(name, ModelPlace{.base_path = absl::StrCat(repository_, "/", name)});
  }
  if (only.has_value()) std::erase_if(to_scan, [&](const auto& p) { return p.first != *only; });
  // A model may have many links to one large folder, and there may be many such models.
  const int64_t names_of_a_model = 10 * std::max(rules_.max_files(), kMaxEntries / 10);
  int64_t names_left = 10 * names_of_a_model;
  std::vector<ModelLook> looks;
  for (const auto& [name, place] : to_scan) {
    ModelLook& look = looks.emplace_back(
        ModelLook{place, names_of_a_model, &scan.models[name], rules_.OfModel(place.base_path)});
    look.scan->listing = ReadNames(
        look, names_left, [&](int64_t* left) { return ListVersionsOrWhy(look.place, left); });
  }
  ScanVersions(std::move(looks), names_left);
  return scan;
}

}  // namespace ulfd::server
