// SPDX-License-Identifier: Apache-2.0
#include "engine/directory/model_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/directory_tree.h"
#include "engine/directory/load_reason.h"
#include "engine/tensor/tensor.h"
#include "engine/weights/proto_file.h"

namespace ulfd::engine {
namespace {

using ulfd::model::v1::ModelManifest;

constexpr absl::string_view kGraphNames = "graph_ulf.txt, net-parameter-conf, *.ulf";
constexpr absl::string_view kWeightsNames[] = {"weights.pb", "dnn-model-dat", "dense.npz",
                                               "dense.txt"};
// Types whose weights are no option; see ulf.proto.
constexpr absl::string_view kTypesWithWeights[] = {"inner_product_layer", "inner_product_layer_ex",
                                                   "prelu_layer",         "bn_layer",
                                                   "dice_layer",          "gru_layer",
                                                   "lstm_layer",          "rnn_layer",
                                                   "convolution_layer"};

// The reason of bad content; a file that cannot be read keeps "io".
absl::Status ContentReason(absl::Status status, LoadReason reason) {
  return IsContentError(status) ? WithLoadReason(std::move(status), reason) : status;
}

// OK if `path` is a regular file.
absl::Status WantFile(const std::string& path, absl::string_view what) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return NotFound(what, ": ", path, " does not exist");
    }
    return FileError(errno, absl::StrCat(what, ": cannot stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(what, ": ", path, " is not a regular file");
  }
  return absl::OkStatus();
}

bool IsFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Names of the regular files in `path`, sorted.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& path) {
  // The server has walked the directory by its own limit.
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListNames(path, INT64_MAX));
  std::erase_if(names,
                [&](const std::string& name) { return !IsFile(absl::StrCat(path, "/", name)); });
  return names;
}

// The one candidate; "" if there is none.
absl::StatusOr<std::string> OnlyOne(const std::vector<std::string>& candidates,
                                    absl::string_view directory, absl::string_view field) {
  if (candidates.empty()) return std::string();
  if (candidates.size() == 1) return absl::StrCat(directory, "/", candidates[0]);
  return InvalidArgument(directory, " holds ", candidates.size(), " files that may be the ", field,
                         ": ", absl::StrJoin(candidates, ", "), "; want one, or `", field,
                         ": \"...\"` in ", kManifestFile);
}

// Field `field` of each element of a repeated field: not empty, no repetition.
template <typename Elements, typename Key>
absl::Status WantDistinct(const Elements& elements, absl::string_view field, Key key) {
  std::set<std::string> seen;
  for (const auto& element : elements) {
    const std::string& name = key(element);
    if (name.empty()) return InvalidArgument(field, ": empty");
    if (!seen.insert(name).second) {
      return InvalidArgument(field, ": \"", name, "\" is given twice");
    }
  }
  return absl::OkStatus();
}

bool IsSha256(const std::string& text) {
  return text.size() == 64 && absl::c_all_of(text, [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

absl::Status WantUpTo(int64_t most, absl::string_view field, int64_t value) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return InvalidArgument(field, " is ", value, ", want 0 to ", most);
}

// Of bytes and of milliseconds: a terabyte, and a lifetime.  Sums of some stay numbers.
constexpr int64_t kMost = int64_t{1} << 40;

absl::Status CheckStore(const model::v1::TableStore& store) {
  if (store.kind_case() == model::v1::TableStore::KIND_NOT_SET) {
    return InvalidArgument("neither rocksdb nor redis");
  }
  if (store.has_redis() && (store.redis().cluster().empty() || store.redis().table().empty())) {
    return InvalidArgument("redis: want cluster and table");
  }
  RETURN_IF_ERROR(WantUpTo(kMost, "cache_bytes", store.cache_bytes()));
  RETURN_IF_ERROR(WantUpTo(kMost, "fetch_timeout_ms", store.fetch_timeout_ms()));
  RETURN_IF_ERROR(WantUpTo(kMost, "row_lifetime_ms", store.row_lifetime_ms()));
  return WantUpTo(kMost, "missing_lifetime_ms", store.missing_lifetime_ms());
}

absl::Status CheckTables(const ModelManifest& manifest) {
  for (const model::v1::TableConfig& table : manifest.tables()) {
    const std::string what = absl::StrCat("tables \"", table.name(), "\": ");
    if (table.default_id() != 0 &&
        table.missing_keys() != model::v1::MISSING_KEY_POLICY_DEFAULT_ROW) {
      return InvalidArgument(what,
                             "default_id without missing_keys: MISSING_KEY_POLICY_DEFAULT_ROW");
    }
    if (!table.has_store()) continue;
    if (absl::Status status = CheckStore(table.store()); !status.ok()) {
      return Annotate(status, what, "store");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPrecisions(const ModelManifest& manifest) {
  bool rounds = manifest.precision() > model::v1::PRECISION_FP32;
  for (const model::v1::LayerPrecision& some : manifest.layer_precision()) {
    if (some.layers().empty()) {
      return InvalidArgument("layer_precision names no layers");
    }
    rounds |= some.precision() > model::v1::PRECISION_FP32;
  }
  if (!manifest.exact() || !rounds) return absl::OkStatus();
  return InvalidArgument("exact beside a precision other than PRECISION_FP32, want one of them");
}

// What can be said of a manifest without the graph.
absl::Status CheckManifest(const std::string& directory, const ModelManifest& manifest) {
  RETURN_IF_ERROR(WantDistinct(manifest.outputs(), "outputs",
                               [](const std::string& name) -> const std::string& { return name; }));
  RETURN_IF_ERROR(WantDistinct(
      manifest.inputs(), "inputs.name",
      [](const model::v1::InputConfig& input) -> const std::string& { return input.name(); }));
  RETURN_IF_ERROR(WantDistinct(
      manifest.tables(), "tables.name",
      [](const model::v1::TableConfig& table) -> const std::string& { return table.name(); }));
  RETURN_IF_ERROR(WantDistinct(manifest.features(), "features.name",
                               [](const model::v1::FeatureConfig& feature) -> const std::string& {
                                 return feature.name();
                               }));
  RETURN_IF_ERROR(
      WantDistinct(manifest.sums(), "sums.path",
                   [](const model::v1::FileSum& sum) -> const std::string& { return sum.path(); }));
  for (const model::v1::InputConfig& input : manifest.inputs()) {
    const std::string what = absl::StrCat("inputs \"", input.name(), "\": row_shape");
    for (const int64_t size : input.row_shape()) {
      if (size > 0) continue;
      return InvalidArgument(what, " holds ", size, ", want positive dimensions");
    }
    RETURN_IF_ERROR(Annotate(CheckDims(input.row_shape()), what));
    RETURN_IF_ERROR(WantUpTo(input.int64() ? engine::kDoubleIntegers : engine::kFloatIntegers,
                             absl::StrCat("inputs \"", input.name(), "\": integers_below"),
                             input.integers_below()));
  }
  for (const model::v1::FeatureConfig& feature : manifest.features()) {
    const std::string what = absl::StrCat("features \"", feature.name(), "\": max_ids_per_row");
    RETURN_IF_ERROR(WantUpTo(INT32_MAX, what, feature.max_ids_per_row()));
  }
  RETURN_IF_ERROR(CheckTables(manifest));
  RETURN_IF_ERROR(CheckPrecisions(manifest));
  RETURN_IF_ERROR(WantUpTo(kMost, "user_cache_bytes", manifest.user_cache_bytes()));
  RETURN_IF_ERROR(WantUpTo(kMost, "ad_cache_bytes", manifest.ad_cache_bytes()));
  for (const model::v1::FileSum& sum : manifest.sums()) {
    RETURN_IF_ERROR(PathWithin(directory, directory, sum.path(), "sums.path").status());
    if (IsSha256(sum.sha256())) continue;
    return InvalidArgument("sums \"", sum.path(), "\": sha256 is \"", sum.sha256(),
                           "\", want 64 lower-case hexadecimal digits");
  }
  return absl::OkStatus();
}

// The file that the manifest's field names, which must exist.
absl::StatusOr<std::string> ManifestFile(const std::string& directory, const std::string& name,
                                         absl::string_view field) {
  const std::string what = absl::StrCat(directory, "/", kManifestFile, ": ", field);
  ASSIGN_OR_RETURN(std::string path, PathWithin(directory, directory, name, what));
  RETURN_IF_ERROR(WantFile(path, what));
  return path;
}

bool NeedsWeights(const ulf::NetParameter& net) {
  return absl::c_any_of(net.layer_params(), [](const ulf::LayerParameter& layer) {
    return layer.arg_names_size() > 0 || layer.input_param().param_size() > 0 ||
           absl::c_linear_search(kTypesWithWeights, layer.type());
  });
}

// OK if the table's file is there, or what a directory of RocksDB cannot lack.
absl::Status WantTable(const ModelDirectory& directory, const EmbeddingConfFile& conf,
                       const TableFile& table) {
  const std::string what = absl::StrCat(conf.path, ": table \"", table.name, "\"");
  for (const model::v1::TableConfig& config : directory.manifest.tables()) {
    if (config.name() != table.name || !config.has_store()) continue;
    const std::string base = directory.graph_path.substr(0, directory.graph_path.rfind('/'));
    ASSIGN_OR_RETURN(const std::string store, StoreDirectory(directory.path, base, config));
    return store.empty() ? absl::OkStatus() : WantFile(absl::StrCat(store, "/CURRENT"), what);
  }
  return WantFile(table.path, what);
}

// OK if everything is there that graph, configurations and manifest name.
absl::Status CheckComplete(const std::string& path) {
  ASSIGN_OR_RETURN(const ModelDirectory directory, OpenModelDirectory(path));
  ASSIGN_OR_RETURN(const ulf::NetParameter net, ReadGraph(directory));
  if (directory.weights_path.empty() && NeedsWeights(net)) {
    return NotFound("weights: none of ", absl::StrJoin(kWeightsNames, ", "), " exists in ", path);
  }
  ASSIGN_OR_RETURN(const std::vector<EmbeddingConfFile> confs, ReadEmbeddingConfs(directory, net));
  for (const EmbeddingConfFile& conf : confs) {
    for (const TableFile& table : conf.tables) {
      RETURN_IF_ERROR(WantTable(directory, conf, table));
    }
  }
  for (const model::v1::FileSum& sum : directory.manifest.sums()) {
    RETURN_IF_ERROR(ManifestFile(path, sum.path(), "sums.path").status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> PathWithin(absl::string_view root, absl::string_view base,
                                       absl::string_view name, absl::string_view what) {
  if (name.empty()) return InvalidArgument(what, ": the path is empty");
  if (absl::StartsWith(name, "/")) {
    return InvalidArgument(what, ": \"", name, "\" is an absolute path, want one relative to ",
                           base);
  }
  // How deep below root the path stands after each of its parts.
  absl::ConsumePrefix(&base, root);
  int depth = 0;
  for (const absl::string_view part :
       absl::StrSplit(absl::StrCat(base, "/", name), '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    depth += part == ".." ? -1 : 1;
    if (depth < 0) {
      return InvalidArgument(what, ": \"", name, "\" leaves ", root);
    }
  }
  if (absl::StrContains(name, absl::string_view("\0", 1))) {
    return InvalidArgument(what, ": the path holds a zero byte");
  }
  return absl::StrCat(root, base, "/", name);
}

absl::StatusOr<std::string> StoreDirectory(absl::string_view root, absl::string_view base,
                                           const ulfd::model::v1::TableConfig& table) {
  if (!table.store().has_rocksdb()) return std::string();
  return PathWithin(root, base, table.store().rocksdb(),
                    absl::StrCat("manifest: tables \"", table.name(), "\": store.rocksdb"));
}

std::vector<std::string> StoreDirectories(const ModelDirectory& directory) {
  std::vector<std::string> stores;
  const std::string base = directory.graph_path.substr(0, directory.graph_path.rfind('/'));
  for (const model::v1::TableConfig& table : directory.manifest.tables()) {
    const auto store = StoreDirectory(directory.path, base, table);
    if (store.ok() && !store->empty()) stores.push_back(*store);
  }
  return stores;
}

absl::StatusOr<ModelManifest> ReadManifest(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestFile);
  ModelManifest manifest;
  struct stat info;
  if (stat(path.c_str(), &info) != 0 && errno == ENOENT) return manifest;
  RETURN_IF_ERROR(WantFile(path, "manifest"));
  RETURN_IF_ERROR(ContentReason(ReadProtoFile(path, ProtoFormat::kText, manifest).status(),
                                LoadReason::kManifest));
  RETURN_IF_ERROR(
      ContentReason(Annotate(CheckManifest(directory, manifest), path), LoadReason::kManifest));
  return manifest;
}

absl::StatusOr<ModelDirectory> OpenModelDirectory(const std::string& path) {
  ModelDirectory directory;
  directory.path = path;
  while (directory.path.size() > 1 && directory.path.back() == '/') directory.path.pop_back();
  struct stat info;
  if (stat(directory.path.c_str(), &info) != 0) {
    return FileError(errno, absl::StrCat("cannot stat ", directory.path));
  }
  if (!S_ISDIR(info.st_mode)) {
    return InvalidArgument(directory.path, " is not a directory, want a version directory");
  }
  ASSIGN_OR_RETURN(directory.manifest, ReadManifest(directory.path));
  ASSIGN_OR_RETURN(const std::vector<std::string> files, ListFiles(directory.path));

  if (!directory.manifest.graph().empty()) {
    ASSIGN_OR_RETURN(directory.graph_path,
                     ManifestFile(directory.path, directory.manifest.graph(), "graph"));
  } else {
    std::vector<std::string> candidates;
    for (const std::string& name : files) {
      if (name == "graph_ulf.txt" || name == "net-parameter-conf" || absl::EndsWith(name, ".ulf")) {
        candidates.push_back(name);
      }
    }
    ASSIGN_OR_RETURN(directory.graph_path, OnlyOne(candidates, directory.path, "graph"));
    if (directory.graph_path.empty()) {
      const auto onnx = absl::c_find_if(
          files, [](const std::string& name) { return absl::EndsWith(name, ".onnx"); });
      return NotFound(
          "graph: none of ", kGraphNames, " exists in ", directory.path,
          onnx == files.end() ? "" : absl::StrCat("; `ulf convert onnx` makes one of ", *onnx));
    }
  }

  if (!directory.manifest.weights().empty()) {
    ASSIGN_OR_RETURN(directory.weights_path,
                     ManifestFile(directory.path, directory.manifest.weights(), "weights"));
  } else {
    std::vector<std::string> candidates;
    for (const std::string& name : files) {
      if (absl::c_linear_search(kWeightsNames, name)) candidates.push_back(name);
    }
    ASSIGN_OR_RETURN(directory.weights_path, OnlyOne(candidates, directory.path, "weights"));
  }
  return directory;
}

namespace {

// A graph may call its layers `layer`, as published prototxt does; everything behind this point
// knows layer_params only.
absl::Status UseLayerParams(ulf::NetParameter& net) {
  if (net.layer().empty()) return absl::OkStatus();
  if (!net.layer_params().empty()) {
    return InvalidArgument("has ", net.layer_params_size(), " layer_params and ", net.layer_size(),
                           " layer, want one of the two spellings");
  }
  net.mutable_layer_params()->Swap(net.mutable_layer());
  return absl::OkStatus();
}

// Names end up in errors, metrics and replies, and passes take up to the square of a graph's size:
// both are bounded well above what any model has.
constexpr size_t kMaxNameBytes = 1024;
constexpr int kMaxLayers = 20000;
constexpr int64_t kMaxEnds = 200000;  // Bottoms and tops of all layers.

template <typename Names>
absl::Status CheckNames(const Names& names, absl::string_view field) {
  for (const std::string& name : names) {
    if (name.size() <= kMaxNameBytes) {
      if (Printable(name, kMaxNameBytes) == name) continue;
      return InvalidArgument(field, " ", Quote(name), " holds control characters");
    }
    return InvalidArgument(field, " of ", name.size(), " bytes, want at most ", kMaxNameBytes, ": ",
                           Quote(name));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const ulf::NetParameter& net) {
  if (net.layer_params_size() > kMaxLayers) {
    return InvalidArgument(net.layer_params_size(), " layers, want at most ", kMaxLayers);
  }
  int64_t ends = 0;
  for (int i = 0; i < net.layer_params_size(); ++i) {
    const ulf::LayerParameter& layer = net.layer_params(i);
    ends += int64_t{layer.bottom_size()} + layer.top_size();
    const std::string* const words[] = {&layer.name(), &layer.type()};
    absl::Status status;
    for (const std::string* word : words) {
      if (status.ok()) status = CheckNames(absl::MakeConstSpan(word, 1), "name or type");
    }
    if (status.ok()) status = CheckNames(layer.bottom(), "bottom");
    if (status.ok()) status = CheckNames(layer.top(), "top");
    if (status.ok()) status = CheckNames(layer.arg_names(), "arg_names");
    if (status.ok()) status = CheckNames(layer.input_param().param(), "input_param.param");
    RETURN_IF_ERROR(Annotate(status, "layer ", i));
  }
  if (ends <= kMaxEnds) return absl::OkStatus();
  return InvalidArgument(ends, " bottoms and tops in all, want at most ", kMaxEnds);
}

}  // namespace

absl::StatusOr<ulf::NetParameter> ReadGraph(const ModelDirectory& directory) {
  ulf::NetParameter net;
  RETURN_IF_ERROR(ContentReason(
      ReadProtoFile(directory.graph_path, ProtoFormat::kDetect, net).status(), LoadReason::kParse));
  RETURN_IF_ERROR(
      ContentReason(Annotate(UseLayerParams(net), directory.graph_path), LoadReason::kParse));
  if (net.layer_params_size() == 0) {
    return WithLoadReason(InvalidArgument(directory.graph_path, ": the graph has no layers"),
                          LoadReason::kParse);
  }
  RETURN_IF_ERROR(
      ContentReason(Annotate(CheckSize(net), directory.graph_path), LoadReason::kParse));
  return net;
}

absl::StatusOr<std::vector<EmbeddingConfFile>> ReadEmbeddingConfs(const ModelDirectory& directory,
                                                                  const ulf::NetParameter& net) {
  std::vector<EmbeddingConfFile> confs;
  std::set<std::string> known;
  const std::string base = directory.graph_path.substr(0, directory.graph_path.rfind('/'));
  for (int i = 0; i < net.layer_params_size(); ++i) {
    const ulf::LayerParameter& layer = net.layer_params(i);
    if (!layer.has_embedding_param()) continue;
    const std::string& name = layer.embedding_param().embedding_conf_path();
    if (!known.insert(name).second) continue;
    const std::string what = absl::StrCat(directory.graph_path, ": layer ", i, " \"", layer.name(),
                                          "\" (", layer.type(), "): embedding_conf_path");
    EmbeddingConfFile conf;
    conf.name = name;
    ASSIGN_OR_RETURN(conf.path, PathWithin(directory.path, base, name, what));
    RETURN_IF_ERROR(WantFile(conf.path, what));
    RETURN_IF_ERROR(ContentReason(
        ReadProtoFile(conf.path, ProtoFormat::kText, conf.config).status(), LoadReason::kParse));
    std::set<std::string> seen;
    for (const blaze::EmbeddingFeatureGroupConfig& group : conf.config.feature_group_config()) {
      if (!seen.insert(group.table_name()).second) continue;
      ASSIGN_OR_RETURN(std::string path,
                       PathWithin(directory.path, base, group.table_name(),
                                  absl::StrCat(conf.path, ": feature_group \"",
                                               group.feature_group(), "\": table_name")));
      conf.tables.push_back({group.table_name(), std::move(path)});
    }
    confs.push_back(std::move(conf));
  }
  return confs;
}

absl::StatusOr<DirectoryState> InspectDirectory(const std::string& path,
                                                const DirectoryRules& rules) {
  ASSIGN_OR_RETURN(DirectoryState state, FingerprintDirectory(path, rules));
  state.complete = true;
  if (state.has_success || !state.fault.ok()) return state;
  if (const absl::Status status = CheckComplete(path); !status.ok()) {
    state.complete = false;
    state.missing = std::string(status.message());
  }
  return state;
}

}  // namespace ulfd::engine
