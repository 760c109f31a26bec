// Changes protobuf messages by their structure, for LLVMFuzzerCustomMutator: bytes that are flipped
// in a serialised message rarely leave a message.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_FUZZ_PROTO_MUTATOR_H_
#define ULFD_TESTS_FUZZ_PROTO_MUTATOR_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ulfd::fuzz {

// How a target's inputs are written.
enum class ProtoForm { kBinary, kText };

// Changes `message` in one to four places: fields added, removed, repeated, swapped or copied from
// elsewhere; numbers set to edge values; strings to other strings of the message or to `names`.
void MutateMessage(uint32_t seed, const std::vector<std::string>& names,
                   google::protobuf::Message& message);
// Puts a part of `from` into `message`, in the place of a part of the same type.
void CrossMessages(uint32_t seed, const google::protobuf::Message& from,
                   google::protobuf::Message& message);

// Fills `message`; false if the bytes are none.  Required fields may be missing.
bool ReadMessage(ProtoForm form, const uint8_t* data, size_t size,
                 google::protobuf::Message& message);

// The bodies of the functions below.  Every eighth change is one of bytes.
size_t MutateInput(ProtoForm form, const std::vector<std::string>& names,
                   google::protobuf::Message& message, uint8_t* data, size_t size, size_t max_size,
                   uint32_t seed);
size_t CrossInputs(ProtoForm form, google::protobuf::Message& a, google::protobuf::Message& b,
                   const uint8_t* data1, size_t size1, const uint8_t* data2, size_t size2,
                   uint8_t* out, size_t max_size, uint32_t seed);

}  // namespace ulfd::fuzz

// Makes a target's inputs messages of `Type`; `names` is an expression of std::vector<std::string>.
#define ULFD_FUZZ_PROTO(Type, form, names)                                                       \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,         \
                                            unsigned int seed) {                                 \
    Type message;                                                                                \
    return ulfd::fuzz::MutateInput(form, names, message, data, size, max_size, seed);            \
  }                                                                                              \
  extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,                \
                                              const uint8_t* data2, size_t size2, uint8_t* out,  \
                                              size_t max_size, unsigned int seed) {              \
    Type a, b;                                                                                   \
    return ulfd::fuzz::CrossInputs(form, a, b, data1, size1, data2, size2, out, max_size, seed); \
  }

#endif  // ULFD_TESTS_FUZZ_PROTO_MUTATOR_H_
