// `ulf explain --html`: a page with pictures of the graph and of the steps, for a browser.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_EXPLAIN_EXPLAIN_HTML_H_
#define ULFD_TOOLS_EXPLAIN_EXPLAIN_HTML_H_

#include <string>

#include "tools/explain/explanation.h"

namespace ulfd::tools {

// One file that needs no other and no network: inline SVG and CSS, no scripts, light and dark.
std::string ExplainHtml(const Explanation& all);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_EXPLAIN_EXPLAIN_HTML_H_
