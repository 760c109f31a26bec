// The pictures of `ulf explain --html`: the graph as written and the steps that run, as SVG.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_EXPLAIN_GRAPH_PICTURE_H_
#define ULFD_TOOLS_EXPLAIN_GRAPH_PICTURE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tools/explain/explanation.h"

namespace ulfd::tools {

// Text for HTML and SVG, also within quotes: markup escaped, what is not UTF-8 or no character of
// XML replaced by U+FFFD.
std::string EscapeHtml(absl::string_view text);

// One <svg> element each.  Classes are styled by the page; a node links to "#layer-N" or "#step-N".
std::string WrittenPicture(const Explanation& all);
std::string PlanPicture(const Explanation& all, const engine::PlanInfo& plan,
                        const Profile* profile);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_EXPLAIN_GRAPH_PICTURE_H_
