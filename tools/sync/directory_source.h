// A directory of this machine as a source.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_SYNC_DIRECTORY_SOURCE_H_
#define ULFD_TOOLS_SYNC_DIRECTORY_SOURCE_H_

#include <memory>
#include <string>

#include "tools/sync/source.h"

namespace ulfd::tools {

std::unique_ptr<Source> MakeDirectorySource(const std::string& root);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_SYNC_DIRECTORY_SOURCE_H_
