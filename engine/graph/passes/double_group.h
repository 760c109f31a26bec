// Several layers that are computed in double as one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_DOUBLE_GROUP_H_
#define ULFD_ENGINE_GRAPH_PASSES_DOUBLE_GROUP_H_

#include <memory>
#include <vector>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// One layer of a group.  Its inputs are numbered: first those of the group, then the outputs of the
// members before it.
struct DoubleMember {
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;
};

// Inputs and outputs are float32; output i is that of member i.  REQUIRES: every member has one
// output and a double version (MakeDoubleFunction).
std::unique_ptr<Layer> MakeDoubleGroup(int inputs, std::vector<DoubleMember> members);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_DOUBLE_GROUP_H_
