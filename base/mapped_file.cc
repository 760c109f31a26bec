// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/errors.h"
#include "base/memory_limit.h"
#include "base/status_macros.h"

namespace ulfd {

namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of all mappings.
std::atomic<bool> files_exceed_memory{false};

// What all mapped files may take: the rest of the address space is the heap's and the stacks', and
// a process that has none left dies at its next allocation.
uint64_t MostMappedBytes() {
  constexpr uint64_t kUserSpace = uint64_t{1} << 47;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0) return kUserSpace / 4;
  return std::min<uint64_t>(limit.rlim_cur, kUserSpace) / 4;
}

std::mutex& MappingMutex() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of all mappings.
  static std::mutex* const mutex = new std::mutex();
  return *mutex;
}

}  // namespace

// Never freed, as the handler may be reading it; used again for later mappings.
struct MappedFile::Watch {
  static constexpr uintptr_t kNone = UINTPTR_MAX;
  std::atomic<uintptr_t> begin{0}, end{0};  // `end` 0: not in use.
  std::atomic<uintptr_t> bad{kNone};        // Offset of the first byte that could not be read.
  Watch* next = nullptr;

  // All there are.
  // NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a handler has no object.
  static std::atomic<Watch*> list;
  static struct sigaction previous;
  static uintptr_t page_bytes;
  // NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

  // Only what may be called in a handler: atomics and system calls.
  static void OnBusError(int signal, siginfo_t* info, void*) {
    const int saved_errno = errno;
    const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Watch* watch = info->si_code > 0 ? list.load() : nullptr; watch != nullptr;
         watch = watch->next) {
      const uintptr_t begin = watch->begin.load(), end = watch->end.load();
      if (at < begin || at >= end) continue;
      uintptr_t none = kNone;
      watch->bad.compare_exchange_strong(none, at - begin);
      // All that follows, in one piece: a piece for each page would be too many for the kernel.
      const uintptr_t page = at / page_bytes * page_bytes;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): a page.
      void* const zeros = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
      errno = saved_errno;
      if (zeros != MAP_FAILED) return;
      break;
    }
    // Not ours.  What failed fails again, under whoever had the signal before.
    sigaction(SIGBUS, &previous, nullptr);
    if (info->si_code <= 0) raise(signal);
    errno = saved_errno;
  }

  // Of all files that are mapped.
  static uintptr_t Bytes() {
    uintptr_t bytes = 0;
    for (const Watch* w = list.load(); w != nullptr; w = w->next) {
      const uintptr_t begin = w->begin.load(), end = w->end.load();
      if (end != 0) bytes += end - begin;
    }
    return bytes;
  }

  // Where all files together are larger than half of the memory, the kernel is not to read what
  // lies around a page that is asked for, which would drive out pages that are asked for.  Under
  // MappingMutex.
  static void AdviseAll() {
    const uintptr_t bytes = Bytes();
    static const auto memory = static_cast<uintptr_t>(MemoryLimit());
    files_exceed_memory.store(bytes > memory / 2);
    if (bytes <= memory / 2) return;
    for (const Watch* w = list.load(); w != nullptr; w = w->next) {
      const uintptr_t begin = w->begin.load(), end = w->end.load();
      if (end == 0) continue;
      // Huge pages are read as a whole, whatever else is said.
      auto* const pages = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr)
      madvise(pages, end - begin, MADV_NOHUGEPAGE);
      madvise(pages, end - begin, MADV_RANDOM);
    }
  }

  static void InstallHandler() {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = &OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
  }
};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a handler has no object.
std::atomic<MappedFile::Watch*> MappedFile::Watch::list{nullptr};
struct sigaction MappedFile::Watch::previous = {};
uintptr_t MappedFile::Watch::page_bytes = 4096;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

MappedFile::Watch* MappedFile::StartWatch(const char* data, size_t size) {
  if (Watch::list.load() == nullptr) Watch::InstallHandler();
  Watch* watch = Watch::list.load();
  while (watch != nullptr && watch->end.load() != 0) watch = watch->next;
  if (watch == nullptr) {
    watch = new Watch();
    watch->next = Watch::list.load();
    Watch::list.store(watch);
  }
  watch->bad.store(Watch::kNone);
  watch->begin.store(reinterpret_cast<uintptr_t>(data));
  watch->end.store(reinterpret_cast<uintptr_t>(data) + size);
  Watch::AdviseAll();
  return watch;
}

absl::StatusOr<std::unique_ptr<const MappedFile>> MappedFile::Map(const InputFile& file) {
  if (file.size() == 0) return InvalidArgument(file.path(), ": empty");
  ASSIGN_OR_RETURN(InputFile own, file.Duplicate());
  const auto size = static_cast<size_t>(own.size());
  const std::lock_guard<std::mutex> lock(MappingMutex());
  const uint64_t most = MostMappedBytes(), mapped_bytes = Watch::Bytes();
  if (size > most - std::min(mapped_bytes, most)) {
    return ResourceExhausted(file.path(), ": ", size, " bytes beside ", mapped_bytes,
                             " of other mapped files, want at most ", most,
                             " in all, a quarter of the address space");
  }
  void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted(file.path(), ": no address space for ", size, " bytes");
  }
  // A hint: tmpfs and some file systems have huge pages.
  madvise(data, size, MADV_HUGEPAGE);
  std::unique_ptr<MappedFile> mapped(new MappedFile(std::move(own)));
  mapped->data_ = static_cast<char*>(data);
  mapped->watch_ = StartWatch(mapped->data_, size);
  return mapped;
}

MappedFile::~MappedFile() {
  // First: others may get these addresses as soon as they are free, and what fails there is theirs.
  // From here on the watch may be another mapping's.
  watch_->end.store(0);
  munmap(data_, size());
}

absl::Status MappedFile::CheckPages() const {
  // Of a page that the file still begins, the kernel gives zeros for what was cut off.  The last
  // byte is beyond such a page, unless it is the last one.
  static_cast<void>(*static_cast<const volatile char*>(data_ + size() - 1));
  const uintptr_t bad = watch_->bad.load(std::memory_order_acquire);
  if (bad == Watch::kNone) return absl::OkStatus();
  return DataLoss(path(), ": byte ", bad, " cannot be read: the file was cut or its disk fails");
}

absl::Status MappedFile::Damage() const {
  return DataLoss(path(), ": bytes ", damage_begin_.load(), " to ", damage_end_.load(),
                  " are damaged");
}

absl::Status MappedFile::Check() const {
  RETURN_IF_ERROR(CheckPages());
  return damage_end_.load() == 0 ? absl::OkStatus() : Damage();
}

absl::Status MappedFile::CheckRead(const char* from, size_t bytes) const {
  RETURN_IF_ERROR(CheckPages());
  const auto begin = static_cast<size_t>(from - data_);
  const bool meets = begin < damage_end_.load() && begin + bytes > damage_begin_.load();
  return meets ? Damage() : absl::OkStatus();
}

void MappedFile::MarkDamaged(size_t begin, size_t end) const {
  damage_begin_.store(std::min(begin, damage_begin_.load()));
  damage_end_.store(std::max(end, damage_end_.load()));
}

bool MappedFilesExceedMemory() { return files_exceed_memory.load(std::memory_order_relaxed); }

void StartReading(const void* from, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t at = reinterpret_cast<uintptr_t>(from), begin = at / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a page.
  madvise(reinterpret_cast<void*>(begin), at + bytes - begin, MADV_WILLNEED);
}

}  // namespace ulfd
