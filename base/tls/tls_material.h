// Certificates and keys from files, checked before anybody uses them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_TLS_TLS_MATERIAL_H_
#define ULFD_BASE_TLS_TLS_MATERIAL_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ulfd {

// The certificate of one port, or of a caller.
struct TlsOptions {
  std::string certificate_file;  // "": plain text.
  std::string key_file;
  std::string client_ca_file;  // "": clients show no certificate.
  std::chrono::milliseconds reload_interval{0};
  bool on() const { return !certificate_file.empty(); }
};

// What a port needs for its handshakes.  PEM.
struct TlsMaterial {
  std::string certificate_chain;
  std::string private_key;  // Never to be printed.
  std::string client_ca;    // Empty: clients show no certificate.
  absl::Time expires;       // When the first certificate of the chain does.
  std::string subject;      // Of the port's own certificate, for the log.
  bool operator==(const TlsMaterial& other) const {
    return certificate_chain == other.certificate_chain && private_key == other.private_key &&
           client_ca == other.client_ca;
  }
};

// Reads the files of `options` (which are on) and checks them: PEM, a key that belongs to the
// certificate, and no certificate of the chain expired or not yet valid at `now`.  Errors name the
// file, never content.  NOT_FOUND / INVALID_ARGUMENT.
absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsOptions& options, absl::Time now);

// The PEM text of a file with certificates and nothing broken among them, of whatever age.  Errors
// as above.
absl::StatusOr<std::string> ReadCertificates(const std::string& path);

}  // namespace ulfd

#endif  // ULFD_BASE_TLS_TLS_MATERIAL_H_
