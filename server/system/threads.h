// Threads of the daemon: background ones give way to the serving ones, and what CPU time they took.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_THREADS_H_
#define ULFD_SERVER_SYSTEM_THREADS_H_

#include <chrono>
#include <functional>
#include <thread>

namespace ulfd::server {

// Lowers the calling thread: nice 10 (about a tenth of the share of a serving thread, so that a
// load still ends on a saturated machine) and the lowest best-effort disk priority.  Names it
// `name` (at most 15 characters) for top and gdb. Where the kernel refuses, the thread stays as it
// is.
void MakeBackgroundThread(const char* name);

// Does `work` on a thread of its own, and asks `give_up`, which waits a little, until it has ended.
// false: given up; the work goes on, and needs whatever it refers to.  Where the system refuses a
// thread, the calling one does the work.
bool EndsUnless(const std::function<void()>& work, const std::function<bool()>& give_up);

// CPU time of the calling thread, so far: what others on a busy machine take does not count.
std::chrono::nanoseconds CpuTimeOfThisThread();
// Of one that can still be joined; once it has ended, 0.
std::chrono::nanoseconds CpuTimeOf(std::thread& thread);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_THREADS_H_
