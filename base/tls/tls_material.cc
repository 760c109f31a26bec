// OpenSSL reads and checks; gRPC would only say that a handshake failed.
// SPDX-License-Identifier: Apache-2.0
#include "base/tls/tls_material.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text_file.h"

namespace ulfd {
namespace {

template <typename T, void (*kFree)(T*)>
struct Deleter {
  void operator()(T* p) const { kFree(p); }
};
void FreeBio(BIO* bio) { BIO_free(bio); }
using BioPtr = std::unique_ptr<BIO, Deleter<BIO, FreeBio>>;
using X509Ptr = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;

BioPtr Reading(const std::string& pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

template <typename... Parts>
absl::Status Bad(const std::string& path, const Parts&... what) {
  ERR_clear_error();  // OpenSSL's own texts could hold content.
  return InvalidArgument(path, ": ", what...);
}

// Every certificate of the file, at least one.
absl::StatusOr<std::vector<X509Ptr>> Certificates(const std::string& path, const std::string& pem) {
  const BioPtr bio = Reading(pem);
  std::vector<X509Ptr> found;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(certificate);
  }
  const unsigned long error = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  if (ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return Bad(path, "certificate ", found.size() + 1, " is broken");
  }
  if (found.empty()) return Bad(path, "holds no PEM certificate");
  return found;
}

std::string SubjectOf(const X509& certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(&certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(std::max<decltype(size)>(size, 0)));
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Day(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

absl::Status CheckValidity(const std::string& path, const X509& certificate, absl::Time now) {
  const absl::Time from = ToTime(X509_get0_notBefore(&certificate));
  const absl::Time until = ToTime(X509_get0_notAfter(&certificate));
  // Without the time of now: who looks again and again tells the same error once.
  if (until < now) {
    return Bad(path, "the certificate of \"", SubjectOf(certificate), "\" expired at ", Day(until));
  }
  if (from > now) {
    return Bad(path, "the certificate of \"", SubjectOf(certificate), "\" is valid from ",
               Day(from), " on");
  }
  return absl::OkStatus();
}

// Clients of OpenSSL, gRPC's among them, refuse a longer one in each handshake.
absl::Status CheckLength(const std::string& path, const std::vector<X509Ptr>& chain) {
  constexpr int kMost = 100 << 10, kBesideEach = 5, kBesideAll = 4;
  int bytes = kBesideAll;
  for (const X509Ptr& one : chain) bytes += i2d_X509(one.get(), nullptr) + kBesideEach;
  if (bytes <= kMost) return absl::OkStatus();
  return Bad(path, "a chain of ", bytes, " bytes, clients take at most ", kMost);
}

// OpenSSL would ask for a passphrase on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::Status CheckKey(const TlsOptions& options, const std::string& pem, X509& certificate) {
  if (pem.find("ENCRYPTED") != std::string::npos) {
    return Bad(options.key_file, "the private key is encrypted, want one without passphrase");
  }
  const BioPtr bio = Reading(pem);
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (key == nullptr) return Bad(options.key_file, "holds no PEM private key");
  if (X509_check_private_key(&certificate, key.get()) != 1) {
    return Bad(options.key_file,
               "the private key does not belong to the certificate "
               "of \"",
               SubjectOf(certificate), "\" in ", options.certificate_file);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsOptions& options, absl::Time now) {
  TlsMaterial material;
  ASSIGN_OR_RETURN(material.certificate_chain, ReadTextFile(options.certificate_file));
  ASSIGN_OR_RETURN(material.private_key, ReadTextFile(options.key_file));
  ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain,
                   Certificates(options.certificate_file, material.certificate_chain));
  RETURN_IF_ERROR(CheckLength(options.certificate_file, chain));
  material.expires = absl::InfiniteFuture();
  for (const X509Ptr& certificate : chain) {
    RETURN_IF_ERROR(CheckValidity(options.certificate_file, *certificate, now));
    material.expires = std::min(material.expires, ToTime(X509_get0_notAfter(certificate.get())));
  }
  RETURN_IF_ERROR(CheckKey(options, material.private_key, *chain[0]));
  material.subject = SubjectOf(*chain[0]);
  if (options.client_ca_file.empty()) return material;
  ASSIGN_OR_RETURN(material.client_ca, ReadTextFile(options.client_ca_file));
  ASSIGN_OR_RETURN(const std::vector<X509Ptr> issuers,
                   Certificates(options.client_ca_file, material.client_ca));
  // A bundle may well hold old issuers, but not only.
  absl::Status last;
  for (const X509Ptr& issuer : issuers) {
    last = CheckValidity(options.client_ca_file, *issuer, now);
    if (last.ok()) return material;
  }
  return last;
}

absl::StatusOr<std::string> ReadCertificates(const std::string& path) {
  ASSIGN_OR_RETURN(std::string pem, ReadTextFile(path));
  RETURN_IF_ERROR(Certificates(path, pem).status());
  return pem;
}

}  // namespace ulfd
