// What `ulf layers` prints, made from the rows of the layer registry.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_LAYER_DOCS_H_
#define ULFD_TOOLS_MODEL_LAYER_DOCS_H_

#include <string>
#include <vector>

#include "engine/layers/layer.h"

namespace ulfd::tools {

// A file of an example, relative to the version directory.
struct ExampleFile {
  std::string name, content;
};

// A version directory with a graph of that one layer, which loads as it stands.  Empty if the row
// has no example.
std::vector<ExampleFile> LayerExample(const engine::LayerType& type);

// One line per type, built-in ones first, then `more`.
std::string LayerList(absl::Span<const engine::LayerType* const> more = {});
// Everything about one type: formula, inputs, parameters with their defaults, weights, source and
// the example.
std::string LayerPage(const engine::LayerType& type);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_LAYER_DOCS_H_
