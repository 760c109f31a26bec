// `ulf explain --json`: everything, for programs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_EXPLAIN_EXPLAIN_JSON_H_
#define ULFD_TOOLS_EXPLAIN_EXPLAIN_JSON_H_

#include <string>

#include "tools/explain/explanation.h"

namespace ulfd::tools {

// One object: name, version, ads (for which figures are given), memory_bytes, row_separable,
// proof_failure, not_optimised, layers, rewrites, plans {written, optimised or null}, profiles,
// cancellations, suggestion, warnings, notices; and of --inputs, where nothing else tells its
// shapes: shapes and, if no plan serves them, as_written (why).  A cost is {flops, bytes}, each
// {per_user, per_ad, total}, the total for `ads` ads.
std::string ExplainJson(const Explanation& all);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_EXPLAIN_EXPLAIN_JSON_H_
