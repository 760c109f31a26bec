// Drops what no output depends on.
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"

namespace ulfd::engine {

absl::Status DropDeadCode(GraphEditor& editor) {
  for (int i = editor.size() - 1; i >= 0; --i) {  // Backwards: readers go before what they read.
    RETURN_IF_ERROR(LoadScope::Check());
    const Node& node = editor.node(i);
    bool needed = false;
    for (ValueId id : node.outputs) needed |= editor.IsOutput(id) || !editor.Readers(id).empty();
    if (!needed) editor.Remove(i, absl::StrCat("nothing reads ", node.Label()));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
