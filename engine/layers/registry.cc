// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/registry.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/closest_names.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

std::vector<const LayerType*> SortedTypes() {
  std::vector<const LayerType*> types;
  for (absl::Span<const LayerType> family :
       {ActivationLayers(), ArithmeticLayers(), BatchDotLayers(), EmbeddingLayers(), MatmulLayers(),
        CyclicLayers(), RecurrentLayers(), ShapeLayers(), SourceLayers(), ConvolutionLayers(),
        ExpressionLayers(), ChoiceLayers(), PoolingLayers(), RearrangeLayers(), UpsampleLayers(),
        NormalizeLayers(), DetectionLayers(), SamplingLayers(), TreeLayers()}) {
    for (const LayerType& type : family) types.push_back(&type);
  }
  std::sort(types.begin(), types.end(),
            [](const LayerType* a, const LayerType* b) { return a->name < b->name; });
  return types;
}

absl::Status UnknownType(absl::string_view type) {
  if (type.empty()) return InvalidArgument("the layer has no type");
  const LayerType* nearest = nullptr;
  size_t best = 0;
  for (const LayerType* candidate : AllLayerTypes()) {
    const size_t distance = EditDistance(type, candidate->name);
    if (nearest == nullptr || distance < best) {
      nearest = candidate;
      best = distance;
    }
  }
  return InvalidArgument("unknown layer type \"", type, "\" (the nearest known one is ",
                         nearest->name, ")");
}

// "2 bottoms, want 1", "0 weights, want 1 to 2", "0 tops, want at least 1".
absl::Status WantCount(int found, absl::string_view noun, const Arity& arity) {
  if (found >= arity.min && found <= arity.max) return absl::OkStatus();
  std::string wanted = absl::StrCat(arity.min);
  if (arity.max >= Arity::kAny) {
    wanted = absl::StrCat("at least ", arity.min);
  } else if (arity.max > arity.min) {
    absl::StrAppend(&wanted, " to ", arity.max);
  }
  return InvalidArgument(found, " ", noun, found == 1 ? "" : "s", ", want ", wanted);
}

// A *_param message that the type does not read is of no consequence: exporters leave them there.
void NoticeOtherParams(const ulf::LayerParameter& param, const LayerType& type, Notices& notices) {
  constexpr int kFirstParamField = 101;
  const google::protobuf::Descriptor* descriptor = ulf::LayerParameter::descriptor();
  const google::protobuf::Reflection* reflection = ulf::LayerParameter::GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = descriptor->field(i);
    if (field->number() < kFirstParamField || field->number() == type.param_field ||
        field->number() == type.other_param_field || !reflection->HasField(param, field)) {
      continue;
    }
    notices.push_back(absl::StrCat(field->name(), " is ignored: ", type.name, " does not read it"));
  }
}

}  // namespace

const std::vector<const LayerType*>& AllLayerTypes() {
  static const auto& types = *new std::vector<const LayerType*>(SortedTypes());
  return types;
}

absl::StatusOr<const LayerType*> FindLayerType(absl::string_view type, Notices& notices,
                                               absl::Span<const LayerType* const> more) {
  struct Alias {
    absl::string_view found, meant;
  };
  // Spellings of the layer guide's examples.
  constexpr Alias kAliases[] = {{"rehshape_layer", "reshape_layer"}, {"reduce_layer", "sum_layer"}};
  if (type == "multiply_concat_sum_layer") {
    return InvalidArgument(
        "multiply_concat_sum_layer is not supported: the published format names it without a "
        "definition");
  }
  absl::string_view name = type;
  for (const Alias& alias : kAliases) {
    if (type != alias.found) continue;
    name = alias.meant;
    notices.push_back(absl::StrCat("type \"", type, "\" is read as ", name));
  }
  const auto& types = AllLayerTypes();
  const auto it = std::lower_bound(
      types.begin(), types.end(), name,
      [](const LayerType* row, absl::string_view wanted) { return row->name < wanted; });
  if (it != types.end() && (*it)->name == name) return *it;
  for (const LayerType* row : types) {
    if (row->aliases.empty()) continue;
    for (absl::string_view alias : absl::StrSplit(row->aliases, ' ')) {
      if (alias == name) return row;
    }
  }
  for (const LayerType* row : more) {
    if (row->name == name) return row;
  }
  return UnknownType(type);
}

absl::StatusOr<std::unique_ptr<Layer>> ParseLayer(const ParseContext& ctx) {
  ASSIGN_OR_RETURN(const LayerType* type,
                   FindLayerType(ctx.param.type(), ctx.notices, ctx.more_types));
  NoticeOtherParams(ctx.param, *type, ctx.notices);
  RETURN_IF_ERROR(WantCount(ctx.param.bottom_size(), "bottom", type->inputs));
  RETURN_IF_ERROR(WantCount(ctx.param.top_size(), "top", type->outputs));
  RETURN_IF_ERROR(WantCount(static_cast<int>(ctx.weights.size()), "weight", type->weights));
  return type->parse(ctx);
}

}  // namespace ulfd::engine
