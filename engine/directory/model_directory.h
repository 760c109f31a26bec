// A version directory on disk: which of its files are the graph, the weights, the embedding
// configurations and the tables, whether they are all there, and whether any of them changed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_DIRECTORY_MODEL_DIRECTORY_H_
#define ULFD_ENGINE_DIRECTORY_MODEL_DIRECTORY_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/directory/directory_tree.h"
#include "proto/embedding.pb.h"
#include "proto/model_manifest.pb.h"
#include "proto/ulf.pb.h"

namespace ulfd::engine {

// The file that a publisher writes last; its content does not matter.
inline constexpr char kSuccessFile[] = "_SUCCESS";
inline constexpr char kManifestFile[] = "model.textproto";

// A version directory whose manifest is read and whose main files are found.
struct ModelDirectory {
  std::string path;
  ulfd::model::v1::ModelManifest manifest;  // Empty if there is no model.textproto.
  std::string graph_path;                   // The file with the ulf.NetParameter; exists.
  std::string weights_path;                 // Exists; empty: the directory holds no weights.
};

// The version directory's manifest; empty if there is none.  INVALID_ARGUMENT for a bad one
// (FILE:LINE:COLUMN for syntax and unknown fields, the field's name otherwise).
absl::StatusOr<ulfd::model::v1::ModelManifest> ReadManifest(const std::string& directory);

// Finds the graph (graph_ulf.txt, net-parameter-conf, *.ulf or the manifest's) and the weights
// (weights.pb, dnn-model-dat, dense.npz, dense.txt or the manifest's; none is allowed).  NOT_FOUND
// if the directory or a file does not exist. INVALID_ARGUMENT if two files could be meant and the
// manifest does not choose, if a path of the manifest leaves the directory, or for a bad manifest.
absl::StatusOr<ModelDirectory> OpenModelDirectory(const std::string& path);

// Reads the graph, text or binary.  INVALID_ARGUMENT with file and position; also for a graph
// without layers.
absl::StatusOr<ulf::NetParameter> ReadGraph(const ModelDirectory& directory);

// A table that an embedding configuration names, and its file.
struct TableFile {
  std::string name;  // table_name.
  std::string path;  // Beside the graph.  Whether it exists is not checked.
};

// An embedding configuration that the graph names.
struct EmbeddingConfFile {
  std::string name;  // embedding_conf_path, as in the graph.
  std::string path;
  blaze::EmbeddingConfig config;
  std::vector<TableFile> tables;  // Each table once, in the order of the file.
};

// Reads each configuration that an embedding_layer of `net` names, once, in the order of the graph.
// NOT_FOUND names the layer and the missing file; INVALID_ARGUMENT a bad file (file:line:column) or
// a path that leaves the directory.
absl::StatusOr<std::vector<EmbeddingConfFile>> ReadEmbeddingConfs(const ModelDirectory& directory,
                                                                  const ulf::NetParameter& net);

// `base`/`name`.  INVALID_ARGUMENT, naming `what`, if `name` is empty, absolute, or leaves `root`
// through "..".  Where symbolic links may lead is decided when the file is opened
// (LoadLimits::roots).
// REQUIRES: base is root or below it.
absl::StatusOr<std::string> PathWithin(absl::string_view root, absl::string_view base,
                                       absl::string_view name, absl::string_view what);

// A complete epoch.
struct EpochMark {
  int64_t epoch = 0;
  std::string mark;  // Changes when its _SUCCESS is written again.
  auto operator<=>(const EpochMark&) const = default;  // NOLINT(modernize-use-nullptr): no pointer.
};

// The directory of the table's rows in RocksDB; "" if they lie elsewhere.  `root`, `base`: as for
// PathWithin.
absl::StatusOr<std::string> StoreDirectory(absl::string_view root, absl::string_view base,
                                           const ulfd::model::v1::TableConfig& table);
// Directories of RocksDB in the version directory, whose files are not loaded.
std::vector<std::string> StoreDirectories(const ModelDirectory& directory);

// The parts of a version directory, as far as they can be told without loading them.
struct DirectoryState {
  // _SUCCESS exists, or the graph and the configurations parse and everything that they name is
  // there.
  bool complete = false;
  bool has_success = false;
  std::string missing;  // Not complete: what is missing, with its reason.
  // Digest of name, size, modification time (ns) and inode of every file in the directory and
  // below, except deltas; empty without files.  Changes when any of them is written, touched,
  // added, removed or replaced.  Comparable between calls for one path and one set of rules only.
  std::string fingerprint;
  std::vector<EpochMark> epochs;  // Ascending.
  // Not OK: the directory breaks the rules, which is all that is known of it.
  absl::Status fault;
  // Of the directory itself, after symbolic links: tells a directory that was swapped as a whole.
  uint64_t device = 0, inode = 0;
  // The latest change (ctime, which cannot be set back) of any of the files; the epoch for an empty
  // directory.
  std::chrono::system_clock::time_point newest_change;
};

// Everything but `complete` and `missing`: stat calls only, no file is read.  NOT_FOUND if the
// directory does not exist; another code if it could not be read, which says nothing of its
// content.
absl::StatusOr<DirectoryState> FingerprintDirectory(const std::string& path,
                                                    const DirectoryRules& rules = {});

// The whole state; reads graph, configurations and manifest unless _SUCCESS exists.  Errors as
// FingerprintDirectory.
absl::StatusOr<DirectoryState> InspectDirectory(const std::string& path,
                                                const DirectoryRules& rules = {});

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_DIRECTORY_MODEL_DIRECTORY_H_
