// inotify behind DirectoryWatcher.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/directory_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// IN_MODIFY is left out: one event per write call of a big copy, and IN_CLOSE_WRITE ends it anyway.
constexpr uint32_t kEvents = IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE |
                             IN_DELETE_SELF | IN_MOVE_SELF | IN_ATTRIB | IN_ONLYDIR;
constexpr milliseconds kQuiet{20};
constexpr milliseconds kLongestBurst{200};

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryWatcher>> DirectoryWatcher::Create(bool use_inotify) {
  std::unique_ptr<DirectoryWatcher> watcher(new DirectoryWatcher());
  watcher->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (watcher->wake_fd_ < 0) return absl::ErrnoToStatus(errno, "cannot create an eventfd");
  if (use_inotify) {
    watcher->inotify_fd_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watcher->inotify_fd_ < 0) {
      watcher->status_ =
          absl::ErrnoToStatus(errno,
                              "no inotify instance (fs.inotify.max_user_instances?), changes are "
                              "found by polling only");
    }
  }
  return watcher;
}

DirectoryWatcher::~DirectoryWatcher() {
  if (wake_fd_ >= 0) close(wake_fd_);
  if (inotify_fd_ >= 0) close(inotify_fd_);
}

void DirectoryWatcher::Watch(const std::vector<std::string>& directories) {
  if (inotify_fd_ < 0) return;
  status_ = absl::OkStatus();
  std::set<int> wanted;
  for (const std::string& directory : directories) {
    // For an inode that is watched already this returns the same number and loses no event.
    const int watch = inotify_add_watch(inotify_fd_, directory.c_str(), kEvents);
    if (watch >= 0) {
      wanted.insert(watch);
    } else if (errno != ENOENT && errno != ENOTDIR && status_.ok()) {
      status_ = absl::Status(
          errno == ENOSPC ? absl::StatusCode::kResourceExhausted : absl::ErrnoToStatusCode(errno),
          absl::StrCat("cannot watch ", directory,
                       errno == ENOSPC ? " (fs.inotify.max_user_watches reached)" : "",
                       ", its changes are found by polling only"));
    }
  }
  for (const int watch : watches_) {
    if (!wanted.contains(watch)) inotify_rm_watch(inotify_fd_, watch);
  }
  watches_ = std::move(wanted);
}

void DirectoryWatcher::Drain() {
  alignas(inotify_event) char buffer[4096];
  while (read(inotify_fd_, buffer, sizeof(buffer)) > 0) {
  }
}

DirectoryWatcher::Reason DirectoryWatcher::Wait(milliseconds timeout) {
  steady_clock::time_point deadline = steady_clock::now() + timeout;
  bool changed = false;
  steady_clock::time_point burst_end;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    pollfd fds[2] = {{.fd = wake_fd_, .events = POLLIN}, {.fd = inotify_fd_, .events = POLLIN}};
    const int ready =
        poll(fds, 2, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT32_MAX)));
    if (ready < 0) continue;  // EINTR.
    if (fds[0].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
      return Reason::kWoken;
    }
    if (ready == 0) return changed ? Reason::kChange : Reason::kTimeout;
    Drain();
    const steady_clock::time_point now = steady_clock::now();
    if (!changed) burst_end = now + kLongestBurst;
    changed = true;
    deadline = std::min(now + kQuiet, burst_end);
  }
}

void DirectoryWatcher::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

}  // namespace ulfd::server
