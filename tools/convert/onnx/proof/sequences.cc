// The interpreter's operators on sequences of tensors, as scripts with lists are exported.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

using Entries = std::vector<Array>;

Array SequenceOf(Entries entries) {
  return {.dims = {0}, .sequence = std::make_shared<const Entries>(std::move(entries))};
}

absl::StatusOr<Entries> EntriesOf(const Call& c) {
  if (c.in[0]->sequence == nullptr) return InvalidArgument("input 0 is no sequence");
  return *c.in[0]->sequence;
}

// A place among so many, from the end where it is negative.
absl::StatusOr<size_t> PlaceOf(const Call& c, size_t input, size_t count) {
  ASSIGN_OR_RETURN(const Sizes place, ListOf(c, input, ""));
  if (place.size() != 1) return InvalidArgument("input ", input, ", want a place");
  return AxisOf(place[0], static_cast<int64_t>(count));
}

Results Empty(const Call& /*c*/) { return One(SequenceOf({})); }

Results Construct(const Call& c) {
  Entries entries;
  for (const Array* x : c.in) {
    if (x == nullptr || x->sequence != nullptr) return InvalidArgument("an entry is missing");
    entries.push_back(*x);
  }
  return One(SequenceOf(std::move(entries)));
}

Results Insert(const Call& c) {
  ASSIGN_OR_RETURN(Entries entries, EntriesOf(c));
  if (c.in[1]->sequence != nullptr) return InvalidArgument("input 1 is a sequence");
  size_t place = entries.size();
  if (c.Has(2)) {
    ASSIGN_OR_RETURN(place, PlaceOf(c, 2, entries.size() + 1));
  }
  entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(place), *c.in[1]);
  int64_t held = 0;
  for (const Array& entry : entries) held += entry.elements();
  if (held > c.options.budget.max_live) {
    return ResourceExhausted("takes more memory than the proof may");
  }
  return One(SequenceOf(std::move(entries)));
}

Results At(const Call& c) {
  ASSIGN_OR_RETURN(const Entries entries, EntriesOf(c));
  ASSIGN_OR_RETURN(const size_t place, PlaceOf(c, 1, entries.size()));
  return One(entries[place]);
}

Results Length(const Call& c) {
  ASSIGN_OR_RETURN(const Entries entries, EntriesOf(c));
  return One(Ints(onnx::TensorProto::INT64, {}, {static_cast<int64_t>(entries.size())}));
}

Results Join(const Call& c) {
  ASSIGN_OR_RETURN(Entries entries, EntriesOf(c));
  if (entries.empty()) return InvalidArgument("joins a sequence without entries");
  const int64_t stated = IntAttribute(c.node, "axis", 0);
  if (IntAttribute(c.node, "new_axis", 0) != 0) {
    ASSIGN_OR_RETURN(const size_t axis, AxisOf(stated, entries.front().rank() + 1));
    for (Array& entry : entries) {
      const size_t place = std::min(axis, entry.dims.size());
      entry.dims.insert(entry.dims.begin() + static_cast<std::ptrdiff_t>(place), 1);
    }
  }
  onnx::NodeProto concat;
  concat.set_op_type("Concat");
  SetInt(concat, "axis", stated);
  std::vector<const Array*> inputs;
  for (const Array& entry : entries) inputs.push_back(&entry);
  return Compute(concat, c.opset, c.options, std::move(inputs));
}

Results Split(const Call& c) {
  const Array& x = *c.in[0];
  if (x.sequence != nullptr) return InvalidArgument("input 0 is a sequence, want a tensor");
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", 0), x.rank()));
  const bool single = !c.Has(1);
  ASSIGN_OR_RETURN(Sizes parts, ListOf(c, 1, ""));
  if (single || c.in[1]->dims.empty()) {  // Parts of one size, of which the last may be smaller.
    const int64_t each = single ? 1 : parts[0];
    if (each < 1) return InvalidArgument("parts of ", each);
    parts.clear();
    for (int64_t left = x.dims[axis]; left > 0; left -= each) parts.push_back(std::min(left, each));
  }
  constexpr size_t kMost = 1 << 16;
  if (parts.size() > kMost) return ResourceExhausted(parts.size(), " parts");
  onnx::NodeProto split;
  split.set_op_type("Split");
  SetInt(split, "axis", static_cast<int64_t>(axis));
  for (size_t i = 0; i < parts.size(); ++i) split.add_output();
  const auto count = static_cast<int64_t>(parts.size());
  const Array sizes = Ints(onnx::TensorProto::INT64, {count}, std::move(parts));
  ASSIGN_OR_RETURN(Entries entries, Compute(split, c.opset, c.options, {&x, &sizes}));
  const bool squeezed = single && IntAttribute(c.node, "keepdims", 1) == 0;
  for (Array& entry : entries) {
    if (squeezed) entry.dims.erase(entry.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  return One(SequenceOf(std::move(entries)));
}

constexpr Operator kOperators[] = {
    {"ConcatFromSequence", 1, &Join},     {"SequenceAt", 2, &At},
    {"SequenceConstruct", 1, &Construct}, {"SequenceEmpty", 0, &Empty},
    {"SequenceInsert", 2, &Insert},       {"SequenceLength", 1, &Length},
    {"SplitToSequence", 1, &Split},
};

}  // namespace

absl::Span<const Operator> SequenceOperators() { return kOperators; }

}  // namespace ulfd::convert::reference
