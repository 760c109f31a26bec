// Pages of mapped files that may not be in memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_MAPPED_PAGES_H_
#define ULFD_BASE_MAPPED_PAGES_H_

#include <cstddef>

namespace ulfd {

// Whether MappedFiles together are larger than half of the memory: reading a page of them may take
// as long as the disk does.
bool MappedFilesExceedMemory();

// Has the kernel read the pages of these mapped bytes, all at a time, without waiting for them.
void StartReading(const void* from, size_t bytes);

}  // namespace ulfd

#endif  // ULFD_BASE_MAPPED_PAGES_H_
