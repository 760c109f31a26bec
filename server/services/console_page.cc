// SPDX-License-Identifier: Apache-2.0
#include "server/services/console_page.h"

#include <openssl/sha.h>

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "server/services/console/console_files.h"

namespace ulfd::server {
namespace {

// What a Content-Security-Policy calls an inline script or style.
std::string HashSource(absl::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest))),
      "'");
}

}  // namespace

HttpReply ConsolePage() {
  return {.content_type = "text/html; charset=utf-8",
          .body = absl::StrReplaceAll(
              kConsoleHtml, {{"/*style*/", kConsoleStyle}, {"/*script*/", kConsoleScript}}),
          .headers = {
              {"Content-Security-Policy",
               absl::StrCat("default-src 'none'; connect-src 'self'; img-src data:; "
                            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                            "script-src ",
                            HashSource(kConsoleScript), "; style-src ", HashSource(kConsoleStyle))},
              {"X-Content-Type-Options", "nosniff"},
              {"Vary", "Accept"}}};
}

}  // namespace ulfd::server
