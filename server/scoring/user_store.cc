// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/user_store.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::server {
namespace {

absl::Status CheckKey(const ulfd::v1::PredictRequest& request) {
  if (request.user_key().size() > kMaxUserKeyBytes) {
    return InvalidArgument("user_key has ", request.user_key().size(), " bytes, want at most ",
                           kMaxUserKeyBytes);
  }
  if (request.user_version() >= 1) return absl::OkStatus();
  return InvalidArgument("user_key without a user_version: it is ", request.user_version(),
                         ", want at least 1");
}

// No part can be taken for another.
std::string FullKey(const std::string& client, const ulfd::v1::PredictRequest& request) {
  const std::string& model = request.model().name();
  return absl::StrCat(client.size(), ":", client, model.size(), ":", model, request.user_version(),
                      ":", request.user_key());
}

absl::Status Missed(const ulfd::v1::PredictRequest& request, absl::string_view why) {
  return FailedPrecondition("user_key \"", absl::CHexEscape(request.user_key()), "\" version ",
                            request.user_version(), ": ", why, "; send user_features again");
}

// One that is large must not drive out all the others.
constexpr int64_t kUsersAtLeast = 64;
// More than most servers have clients.
constexpr size_t kShares = 64;

LentFeatures Lend(std::shared_ptr<const ReturnFeatures::Features> features,
                  ulfd::v1::PredictRequest& request) {
  ReturnFeatures::Features& to = *request.mutable_user_features();
  to.Reserve(features->size());
  LentFeatures lent(&request, {std::move(features)});
  // Nobody changes the features of a request.
  for (const ulfd::v1::Feature& feature : *lent.get_deleter().lent) {
    to.UnsafeArenaAddAllocated(const_cast<ulfd::v1::Feature*>(&feature));
  }
  return lent;
}

}  // namespace

void ReturnFeatures::operator()(ulfd::v1::PredictRequest* request) const {
  Features& from = *request->mutable_user_features();
  from.UnsafeArenaExtractSubrange(0, from.size(), nullptr);
}

UserStore::UserStore(int64_t max_bytes, std::chrono::milliseconds max_age, const Clock& clock)
    : max_bytes_(max_bytes), max_age_(max_age), clock_(clock) {
  for (size_t i = 0; i < kShares; ++i) shares_.emplace_back(max_bytes);
}

int64_t UserStore::bytes() const {
  return std::accumulate(shares_.begin(), shares_.end(), int64_t{0},
                         [](int64_t sum, const Share& share) { return sum + share.stats().bytes; });
}

absl::StatusOr<UserStore::Completed> UserStore::Complete(const std::string& client,
                                                         ulfd::v1::PredictRequest& request) {
  if (request.user_key().empty()) {
    if (request.user_version() == 0) return Completed();
    return InvalidArgument("user_version ", request.user_version(), " without a user_key");
  }
  RETURN_IF_ERROR(CheckKey(request));
  std::string name = FullKey(client, request);
  Share& share = shares_[absl::HashOf(client) % kShares];
  if (!request.user_features().empty()) {
    return Completed{.share = &share, .name = max_bytes_ == 0 ? "" : std::move(name)};
  }
  const std::shared_ptr<const Kept> kept = share.Find(name);
  if (kept != nullptr && clock_.Now() < kept->until) {
    saved_bytes_.fetch_add(kept->wire_bytes, std::memory_order_relaxed);
    return Completed{.lent = Lend({kept, &kept->features}, request)};
  }
  misses_.fetch_add(1, std::memory_order_relaxed);
  return Missed(request, max_bytes_ == 0
                             ? "no features are kept here (limits.kept_users_bytes is 0)"
                             : "its features are not here, or not any more");
}

absl::Status UserStore::Decoded(const Completed& user, const ulfd::v1::PredictRequest& request,
                                absl::Status status) {
  if (user.lent == nullptr) {
    if (status.ok()) Keep(user, request);
    return status;
  }
  // What was lent is not the caller's fault.
  const bool fits = !absl::IsInvalidArgument(status);
  (fits ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed);
  return fits ? status
              : Missed(request,
                       absl::StrCat("with the features that are kept of it: ", status.message()));
}

void UserStore::Keep(const Completed& user, const ulfd::v1::PredictRequest& request) {
  if (user.name.empty()) return;
  auto kept = std::make_shared<Kept>();
  kept->features = request.user_features();
  for (const auto& feature : kept->features) {
    kept->wire_bytes += static_cast<int64_t>(feature.ByteSizeLong());
  }
  kept->until = clock_.Now() + max_age_;
  const auto bytes = static_cast<int64_t>(sizeof(Kept)) +
                     static_cast<int64_t>(kept->features.SpaceUsedExcludingSelfLong());
  // One that is too large goes the way of one that is larger than all of it.
  const bool fits = bytes <= max_bytes_ / kUsersAtLeast;
  user.share->Insert(user.name, std::move(kept), fits ? bytes : max_bytes_);
  // What nobody may use any more goes, also of clients that call no more.
  shares_[kept_.fetch_add(1) % kShares].DropOldest(
      [now = clock_.Now()](const Kept& oldest) { return oldest.until <= now; });
  while (this->bytes() > max_bytes_) {
    const auto largest = std::max_element(
        shares_.begin(), shares_.end(),
        [](const Share& a, const Share& b) { return a.stats().bytes < b.stats().bytes; });
    largest->DropOldest([](const Kept&) { return true; });
  }
}

void UserStore::Collect(MetricPage& page) const {
  page.AddGauge("ulfd_kept_users_bytes", "What users' features kept for their keys take", bytes());
  page.AddCounter("ulfd_kept_users_saved_bytes_total",
                  "Bytes of features that requests with a user_key alone did not bring",
                  saved_bytes_.load(std::memory_order_relaxed));
  for (const auto& [result, requests] :
       {std::pair("hit", hits_.load(std::memory_order_relaxed)),
        std::pair("miss", misses_.load(std::memory_order_relaxed))}) {
    page.AddCounter("ulfd_kept_users_total",
                    "Requests with a user_key alone, and whether its features were here", requests,
                    {{"result", result}});
  }
}

}  // namespace ulfd::server
