// CPU time of threads: what others on a busy machine take does not count.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_THREAD_TIME_H_
#define ULFD_SERVER_SYSTEM_THREAD_TIME_H_

#include <chrono>
#include <thread>

namespace ulfd::server {

// Of the calling thread, so far.
std::chrono::nanoseconds CpuTimeOfThisThread();
// Of one that can still be joined; once it has ended, 0.
std::chrono::nanoseconds CpuTimeOf(std::thread& thread);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_THREAD_TIME_H_
