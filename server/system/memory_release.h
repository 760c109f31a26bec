// What loading and freeing models leaves in the allocator.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_MEMORY_RELEASE_H_
#define ULFD_SERVER_SYSTEM_MEMORY_RELEASE_H_

namespace ulfd::server {

// What the calling thread has freed goes back to the allocator and from there to the system, where
// the next load would otherwise add its own on top.  Takes long on glibc: for background threads.
void ReleaseFreeMemory();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_MEMORY_RELEASE_H_
