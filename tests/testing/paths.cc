// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/paths.h"

namespace ulfd::testing {

std::string SourceDir() { return ULFD_SOURCE_DIR; }
std::string TestData() { return SourceDir() + "/tests/data"; }
std::string SharedDir() { return SourceDir() + "/../shared"; }

}  // namespace ulfd::testing
