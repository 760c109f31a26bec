// What elementwise operators compute from ids alone: a value per id.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/features/features.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// Values that are computed at once.
constexpr int64_t kPiece = 1 << 18;

Constant IdsOf(const IdRange& range) {
  std::vector<Dim> ids;
  for (int64_t id = range.first; id < range.end; ++id) ids.push_back(Dim::Of(id));
  return IntConstant({range.end - range.first}, std::move(ids));
}

// -kNegativeIds, and ids further down.
Constant FarBelow() {
  std::vector<Dim> ids;
  for (int64_t id = kNegativeIds; id <= int64_t{1} << 24; id *= 2) {
    for (const int64_t near : {id, id + 1, id + id / 3}) ids.push_back(Dim::Of(-near));
  }
  const auto count = static_cast<int64_t>(ids.size());
  return IntConstant({count}, std::move(ids));
}

double At(const Constant& values, int64_t i) {
  const int64_t at = values.elements() == 1 ? 0 : i;
  return values.is_float ? double{values.f32(at)} : static_cast<double>(values.dim(at).value());
}

// Whether value i is a row of a table, which ONNX counts from the end where it is negative.
bool IsRow(const Constant& values, int64_t i, int64_t rows) {
  const double value = At(values, i);
  return value >= -static_cast<double>(rows) && value < static_cast<double>(rows);
}

// A constant that is the same for all elements, as a scalar.
absl::StatusOr<Constant> ScalarOf(const Constant* from) {
  const bool some =
      from != nullptr && (from->uniform || (IsNumbers(from->dims) && from->elements() > 0));
  bool same = some;
  for (int64_t i = 1; same && !from->uniform && i < from->elements(); ++i) {
    same = from->is_float ? from->f32(i) == from->f32(0) : from->dim(i) == from->dim(0);
  }
  if (!same) return Unimplemented("ids meet what is not the same constant for all of them");
  if (from->is_float) return FloatConstant({}, {from->f32(0)});
  return IntConstant({}, {from->dim(0)});
}

}  // namespace

bool IsIdFunction(const std::string& op) {
  constexpr const char* kKnown[] = {"Add", "Sub",  "Mul",  "Div",   "Mod",  "Min",   "Max",
                                    "And", "Or",   "Xor",  "Not",   "Cast", "Clip",  "Neg",
                                    "Abs", "Sign", "Relu", "Floor", "Ceil", "Where", "Identity"};
  return IsComparison(op) || std::any_of(std::begin(kKnown), std::end(kKnown),
                                         [&](const char* known) { return op == known; });
}

// The ids `of` by the formula, or what the nodes behind `ids` make of them; `known`: of nodes.
absl::StatusOr<Constant> OnnxFeatures::Evaluate(const Ids& ids, const Constant& of,
                                                Evaluated& known) const {
  if (ids.made_by == nullptr) {
    const IdColumn& formula = ids.first();
    std::vector<Dim> ints;
    std::vector<float> floats;
    for (const Dim& id : of.ints) {
      const int64_t value = id.value() * formula.scale + formula.offset;
      if (IsPlainFloat(ids.type)) {
        floats.push_back(static_cast<float>(value));
      } else {
        ints.push_back(Dim::Of(value));
      }
    }
    return IsPlainFloat(ids.type) ? FloatConstant(of.sizes(), std::move(floats))
                                  : IntConstant(of.sizes(), std::move(ints));
  }
  const onnx::NodeProto& node = *ids.made_by;
  if (const auto found = known.find(&node); found != known.end()) return found->second;
  std::vector<Constant> values;
  for (const IdArgument& argument : ArgumentsOf(node)) {
    values.emplace_back();
    if (argument.ids != nullptr) {
      ASSIGN_OR_RETURN(values.back(), Evaluate(*argument.ids, of, known));
    } else if (!node.input(static_cast<int>(values.size()) - 1).empty()) {
      ASSIGN_OR_RETURN(values.back(), ScalarOf(argument.constant));
    }
  }
  std::vector<const Constant*> inputs;
  for (const Constant& value : values) {
    const bool left_out = node.input(static_cast<int>(inputs.size())).empty();
    inputs.push_back(left_out ? nullptr : &value);
  }
  ASSIGN_OR_RETURN(std::vector<Constant> folded, FoldNode(node, graph_.opset(), inputs));
  return known[&node] = std::move(folded.front());
}

// What each of the ids is or has become.
absl::StatusOr<std::vector<double>> OnnxFeatures::ValuesOf(const Ids& ids, IdRange of) const {
  std::vector<double> all;
  all.reserve(static_cast<size_t>(of.end - of.first));
  for (int64_t first = of.first; first < of.end; first += kPiece) {
    const IdRange piece{first, std::min(of.end, first + kPiece)};
    Evaluated known;
    ASSIGN_OR_RETURN(const Constant values, Evaluate(ids, IdsOf(piece), known));
    for (int64_t i = 0; i < piece.end - piece.first; ++i) {
      all.push_back(At(values, i));
      if (!std::isfinite(all.back())) {
        return Unimplemented("id ", piece.first + i, " becomes ", all.back());
      }
    }
  }
  return all;
}

// Ids around 0 that become rows of a table with so many rows.  UNIMPLEMENTED if those are none, or
// any id does: then the input need not hold ids of this table.
absl::StatusOr<IdRange> OnnxFeatures::RangeInto(const Ids& ids, int64_t rows) const {
  constexpr int64_t kMostIds = 1 << 26, kFar = 1 << 30;
  std::vector<Dim> far;
  for (int64_t id = rows; id <= kFar / 2; id *= 2) {
    for (const int64_t near : {id, id + 1, id + id / 3}) far.push_back(Dim::Of(near));
  }
  const auto count = static_cast<int64_t>(far.size());
  Evaluated known;
  ASSIGN_OR_RETURN(const Constant afar, Evaluate(ids, IntConstant({count}, far), known));
  bool all = true;
  for (int64_t i = 0; i < count; ++i) all &= IsRow(afar, i, rows);
  if (all) return Unimplemented("");
  IdRange range;
  for (bool within = true; within && range.end < kMostIds;) {
    Evaluated of_piece;
    const IdRange piece{range.end, range.end + std::min(kPiece, std::max<int64_t>(rows, 1024))};
    ASSIGN_OR_RETURN(const Constant values, Evaluate(ids, IdsOf(piece), of_piece));
    for (; within && range.end < piece.end; range.end += within ? 1 : 0) {
      within = IsRow(values, range.end - piece.first, rows);
    }
  }
  Evaluated of_negative;
  ASSIGN_OR_RETURN(const Constant below, Evaluate(ids, IdsOf({-kNegativeIds, 0}), of_negative));
  while (range.first > -kNegativeIds && IsRow(below, kNegativeIds + range.first - 1, rows)) {
    --range.first;
  }
  if (range.end < 1) return Unimplemented("");
  if (range.first == -kNegativeIds) {
    Evaluated of_far;
    const absl::StatusOr<Constant> values = Evaluate(ids, FarBelow(), of_far);
    range.all_below = values.ok();
    for (int64_t i = 0; values.ok() && i < values->elements(); ++i) {
      range.all_below &= IsRow(*values, i, rows);
    }
  }
  return range;
}

// Whether a column may have ids however far below 0.
bool OnnxFeatures::TakesAllBelow(const Ids& ids) const {
  return std::any_of(ids.columns->begin(), ids.columns->end(), [&](const IdColumn& column) {
    return ids_of_.at(column.input->name).at(column.at).all.all_below;
  });
}

// Has the table give ids below -kNegativeIds what they become, where they may come.  UNIMPLEMENTED
// if that is not the same for all.
absl::Status OnnxFeatures::KeepBelow(const Ids& ids, const std::string& table) {
  if (ids.made_by == nullptr || !TakesAllBelow(ids)) return absl::OkStatus();
  Evaluated known;
  ASSIGN_OR_RETURN(const Constant below, Evaluate(ids, FarBelow(), known));
  for (int64_t i = 1; i < below.elements(); ++i) {
    if (At(below, i) == At(below, 0)) continue;
    return Unimplemented("ids below -", kNegativeIds, " become different values");
  }
  ulfd::model::v1::TableConfig& config = *graph_.builder().model().manifest.add_tables();
  config.set_name(table);
  config.set_missing_keys(ulfd::model::v1::MISSING_KEY_POLICY_DEFAULT_ROW);
  config.set_default_id(-kNegativeIds);
  return absl::OkStatus();
}

// An operator on the same columns, and on single constants: a value per id.
absl::StatusOr<Ids> OnnxFeatures::ApplyFunction(const onnx::NodeProto& node, bool searching) const {
  const bool cast = node.op_type() == "Cast";
  if (!IsIdFunction(node.op_type()) ||
      (cast && IntAttribute(node, "to", 0) != onnx::TensorProto::BOOL)) {
    return Unimplemented("");
  }
  const Ids* like = nullptr;
  const std::vector<IdArgument> arguments = ArgumentsOf(node);
  for (const IdArgument& argument : arguments) {
    if (argument.ids == nullptr) continue;
    const Ids& ids = *argument.ids;
    if (!(searching ? CouldBeIds(ids) : AreIds(ids)) || !ids.is_uniform()) {
      return Unimplemented("");
    }
    if (like == nullptr) like = &ids;
    if (ids.dims != like->dims || !ids.SameColumns(*like)) return Unimplemented("");
  }
  if (like == nullptr) return Unimplemented("");
  for (const IdArgument& argument : arguments) {
    if (argument.constant == nullptr) continue;
    const absl::StatusOr<Dims> both = BroadcastDims(like->dims, argument.constant->dims);
    if (!both.ok() || *both != like->dims) return Unimplemented("");
  }
  Ids out = *like;
  out.type = graph_.TypeOf(node.output(0));
  out.made_by = &node;
  for (const IdArgument& argument : arguments) {
    if (argument.ids != nullptr) out.depth = std::max(out.depth, argument.ids->depth + 1);
  }
  // All of it is evaluated for each node.
  constexpr int kDeepest = 64;
  if (out.depth > kDeepest) return Unimplemented("");
  // Layers may compute what tables cannot hold.
  constexpr int64_t kSome = 64;
  const IdRange some{-kNegativeIds, searching ? kSome : RowsOf(*like)};
  if (!ValuesOf(out, some).ok()) return Unimplemented("");
  return out;
}

}  // namespace ulfd::convert
