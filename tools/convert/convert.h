// Caffe models turned into ULF version directories.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_CONVERT_H_
#define ULFD_TOOLS_CONVERT_CONVERT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/convert/report.h"

namespace ulfd::convert {

struct ConvertOptions {
  // Inputs whose single row belongs to the user, and inputs with a row per ad.  What neither lists
  // belongs to the ads.  A name that the net lacks is an error.
  std::vector<std::string> user_inputs, ad_inputs;
};

// Converts a Caffe net (text or binary NetParameter) with its weights (empty: the net needs none)
// into the new version directory `out`.  UNIMPLEMENTED lists every node that cannot be converted;
// INVALID_ARGUMENT tells where the input contradicts itself.  On any error nothing is written.
absl::StatusOr<Report> ConvertCaffe(const std::string& net, const std::string& weights,
                                    const std::string& out, const ConvertOptions& options);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_CONVERT_H_
