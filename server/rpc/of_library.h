// A library's function that the program has one of its own before.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_OF_LIBRARY_H_
#define ULFD_SERVER_RPC_OF_LIBRARY_H_

#include <dlfcn.h>

#include <cstdlib>

namespace ulfd::server {

template <typename Function>
Function* OfLibrary(const char* name) {
  void* function = dlsym(RTLD_NEXT, name);
  if (function == nullptr) std::abort();  // Who called ours?
  return reinterpret_cast<Function*>(function);
}

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_OF_LIBRARY_H_
