// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/digest.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

// Calls `consume` with the file's content, piece by piece.  Returns the number of bytes.
absl::StatusOr<uint64_t> Stream(const std::string& path,
                                absl::FunctionRef<bool(const char*, size_t)> consume) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::vector<char> buffer(size_t{1} << 20);
  uint64_t total = 0;
  while (true) {
    ASSIGN_OR_RETURN(const size_t got, file.Read(buffer.data(), buffer.size()));
    if (got == 0) return total;
    if (!consume(buffer.data(), got)) {
      return Internal(path, ": the digest library failed");
    }
    total += got;
  }
}

}  // namespace

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> ctx(EVP_MD_CTX_new(),
                                                                    &EVP_MD_CTX_free);
  if (ctx == nullptr || EVP_DigestInit_ex(ctx.get(), EVP_sha256(), nullptr) != 1) {
    return Internal("SHA-256 is not available in this OpenSSL");
  }
  const absl::StatusOr<uint64_t> streamed = Stream(path, [&ctx](const char* data, size_t size) {
    return EVP_DigestUpdate(ctx.get(), data, size) == 1;
  });
  if (!streamed.ok()) return streamed.status();
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(ctx.get(), digest, &size) != 1) {
    return Internal(path, ": SHA-256 failed");
  }
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

struct ContentHasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(state_->xxh);
}

ContentHasher::~ContentHasher() = default;

void ContentHasher::Add(absl::string_view piece) {
  XXH3_128bits_update(state_->xxh, piece.data(), piece.size());
  const uint64_t size = piece.size();  // The size after the piece delimits it.
  XXH3_128bits_update(state_->xxh, &size, sizeof(size));
}

absl::Status ContentHasher::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(const uint64_t size, Stream(path, [this](const char* data, size_t n) {
                     return XXH3_128bits_update(state_->xxh, data, n) == XXH_OK;
                   }));
  XXH3_128bits_update(state_->xxh, &size, sizeof(size));
  return absl::OkStatus();
}

std::string ContentHasher::Hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)));
}

}  // namespace ulfd::engine
