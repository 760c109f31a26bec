// A whole graph with inputs and expected outputs, as data: read from JSON, written out as a model
// directory, compared.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_GRAPH_CASE_H_
#define ULFD_TESTS_TESTING_GRAPH_CASE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/model.h"

namespace ulfd::testing {

// An array of a case; `values` as doubles whatever the type.
struct CaseArray {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

struct GraphCase {
  std::string name, graph, weights_text, manifest, must_refuse;
  std::map<std::string, std::string> confs, tables;
  std::map<std::string, CaseArray> inputs, expected;
};

// Reads a file that tests/make_random_graphs.py wrote (or one of the same form).  Throws on a file
// that it cannot read.
std::vector<GraphCase> ReadGraphCases(const std::string& path);

// Writes the case as a version directory below `base` and returns its path.
std::string WriteModelDirectory(const GraphCase& graph_case, const std::string& base);

// The arrays of an npz file.  Throws on a file that it cannot read.
std::map<std::string, CaseArray> ReadArrays(const std::string& path);

// The backend that ULFD_TEST_BACKEND names, so that CTest runs the same tests with each; nothing:
// the engine's default.
std::optional<engine::Backend> BackendOfEnvironment();

// What the case's inputs say of levels and widths, as a manifest: one row is the user's.
std::string InputManifest(const GraphCase& graph_case);

// Inputs in the engine's types; the tensors point into this object.
class CaseInputs {
 public:
  explicit CaseInputs(const std::map<std::string, CaseArray>& arrays);
  const std::vector<engine::NamedTensor>& tensors() const { return tensors_; }

 private:
  std::map<std::string, std::vector<char>> buffers_;
  std::vector<engine::NamedTensor> tensors_;
};

// The largest |found - wanted| / max(min_scale, largest |wanted|); infinity where one is NaN or
// infinite and the other is not the same, or where the shapes differ.
double Error(const engine::Tensor& found, const CaseArray& wanted, double min_scale = 1);

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_GRAPH_CASE_H_
