// Where the tests find their data.  One object alone knows the checkout, so that a compiler cache
// serves the objects of all tests to any other checkout.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_PATHS_H_
#define ULFD_TESTS_TESTING_PATHS_H_

#include <string>

namespace ulfd::testing {

std::string SourceDir();
std::string TestData();   // tests/data
std::string SharedDir();  // Exported models and the reference, beside the checkout; may be missing.
// The text of a document of SharedDir() by the number that begins its name; "" if it is not there.
std::string SharedDocument(const std::string& number);

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_PATHS_H_
