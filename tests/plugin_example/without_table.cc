// A shared library that is no plug-in.
// SPDX-License-Identifier: Apache-2.0
extern "C" int Unrelated() { return 1; }
