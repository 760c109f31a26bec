// `ulf explain` for a terminal.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_EXPLAIN_EXPLAIN_TEXT_H_
#define ULFD_TOOLS_EXPLAIN_EXPLAIN_TEXT_H_

#include <string>

#include "tools/explain/explanation.h"

namespace ulfd::tools {

std::string ExplainText(const Explanation& all);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_EXPLAIN_EXPLAIN_TEXT_H_
