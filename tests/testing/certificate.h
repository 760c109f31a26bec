// Certificates for one test, made by openssl(1).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_CERTIFICATE_H_
#define ULFD_TESTS_TESTING_CERTIFICATE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace ulfd {

// A key and a certificate of thirty days that signs itself: NAME.key and NAME.crt.  `more`: further
// options.
inline void MakeCertificate(const TempDir& dir, const std::string& name,
                            const std::string& more = "") {
  const std::string command = absl::StrCat(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ",
      dir.File(name + ".key"), " -out ", dir.File(name + ".crt"), " -days 30 -subj /CN=", name, " ",
      more, " 2>", dir.File("log"));
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

// The same key, encrypted: LOCKED.key.
inline void EncryptKey(const TempDir& dir, const std::string& name, const std::string& locked) {
  const std::string command =
      absl::StrCat("openssl pkcs8 -topk8 -in ", dir.File(name + ".key"), " -out ",
                   dir.File(locked + ".key"), " -passout pass:open-sesame");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace ulfd

#endif  // ULFD_TESTS_TESTING_CERTIFICATE_H_
