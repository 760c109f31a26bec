// Several layers that are computed in double as one.
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes/double_group.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/status_macros.h"
#include "engine/layers/common/double_math.h"

namespace ulfd::engine {

namespace {

using Members = std::vector<DoubleMember>;
// Of the group's inputs and its members' outputs.
using LocalSpecs = absl::InlinedVector<TensorSpec, 16>;

// Runs Infer of every member.
absl::StatusOr<LocalSpecs> InferAll(const Members& members, absl::Span<const TensorSpec> in) {
  LocalSpecs specs(in.begin(), in.end());
  for (const DoubleMember& member : members) {
    absl::InlinedVector<TensorSpec, 8> inputs;
    for (int i : member.inputs) inputs.push_back(specs[i]);
    ASSIGN_OR_RETURN(TensorSpecs out, member.layer->Infer(inputs));
    specs.push_back(std::move(out[0]));
  }
  return specs;
}

class DoubleGroupKernel final : public Kernel {
 public:
  explicit DoubleGroupKernel(std::shared_ptr<const Members> members)
      : members_(std::move(members)) {
    for (const DoubleMember& member : *members_) {
      functions_.push_back(MakeDoubleFunction(member.layer->semantics()));
    }
  }

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const auto& function : functions_) bytes += function->bytes();
    return bytes;
  }

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const absl::StatusOr<LocalSpecs> specs = InferAll(*members_, SpecsOf(in));
    if (!specs.ok()) return 0;  // Run says why.
    size_t bytes = 0;
    for (const TensorSpec& spec : *specs) bytes += BytesOf(spec.shape.Elements().value());
    return bytes;
  }

  absl::Status Run(RunContext& ctx) const override {
    ASSIGN_OR_RETURN(const LocalSpecs specs, InferAll(*members_, SpecsOf(ctx.in)));
    absl::InlinedVector<DoubleTensor, 16> values;
    char* free = static_cast<char*>(ctx.scratch);
    for (const TensorSpec& spec : specs) {
      DoubleTensor& value = values.emplace_back();
      for (Dim d : spec.shape.dims()) value.dims.push_back(d.value());
      value.data = reinterpret_cast<double*>(free);
      free += BytesOf(value.elements());
    }
    for (size_t i = 0; i < ctx.in.size(); ++i) {
      std::copy_n(ctx.in[i].f32(), ctx.in[i].elements(), values[i].data);
    }
    for (size_t m = 0; m < members_->size(); ++m) {
      absl::InlinedVector<DoubleTensor, 8> inputs;
      for (int i : (*members_)[m].inputs) inputs.push_back(values[i]);
      DoubleTensor& value = values[ctx.in.size() + m];
      functions_[m]->Run(inputs, value);
      float* out = ctx.out[m].f32();
      const int64_t n = value.elements();
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(value.data[i]);
    }
    return absl::OkStatus();
  }

 private:
  static size_t BytesOf(int64_t elements) {
    return (static_cast<size_t>(elements) * sizeof(double) + 63) / 64 * 64;
  }
  static LocalSpecs SpecsOf(absl::Span<const Tensor> in) {
    LocalSpecs specs;
    for (const Tensor& tensor : in) {
      specs.push_back({tensor.dtype, Shape::Of(tensor.dims), Level::kUnknown});
    }
    return specs;
  }

  const std::shared_ptr<const Members> members_;
  std::vector<std::unique_ptr<const DoubleFunction>> functions_;
};

class DoubleGroup final : public Layer {
 public:
  DoubleGroup(int inputs, Members members)
      : inputs_(inputs), members_(std::make_shared<const Members>(std::move(members))) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    ASSIGN_OR_RETURN(const LocalSpecs specs, InferAll(*members_, in));
    return TensorSpecs(specs.begin() + inputs_, specs.end());
  }

  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    LocalSpecs specs(in.begin(), in.end());
    for (const DoubleMember& member : *members_) {
      absl::InlinedVector<TensorSpec, 8> inputs;
      bool ranked = true;
      for (int i : member.inputs) inputs.push_back(specs[i]);
      member.layer->SuggestInputs(absl::MakeSpan(inputs));
      for (size_t i = 0; i < inputs.size(); ++i) {
        ranked &= specs[member.inputs[i]].shape.ranked();
        if (member.inputs[i] < inputs_) specs[member.inputs[i]] = inputs[i];
      }
      TensorSpec out;
      if (ranked) {
        absl::StatusOr<TensorSpecs> made = member.layer->Infer(inputs);
        if (made.ok()) out = (*made)[0];
      }
      specs.push_back(std::move(out));
    }
    std::copy_n(specs.begin(), inputs_, in.begin());
  }

  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new DoubleGroupKernel(members_));
  }

  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override {
    double flops = 0;
    for (size_t m = 0; m < members_->size(); ++m) {
      const DoubleMember& member = (*members_)[m];
      absl::InlinedVector<TensorSpec, 8> inputs;
      for (int i : member.inputs) inputs.push_back(i < inputs_ ? in[i] : out[i - inputs_]);
      flops += member.layer->Flops(inputs, out.subspan(m, 1));
    }
    return flops;
  }

 private:
  const int inputs_;
  const std::shared_ptr<const Members> members_;
};

}  // namespace

std::unique_ptr<Layer> MakeDoubleGroup(int inputs, std::vector<DoubleMember> members) {
  return std::make_unique<DoubleGroup>(inputs, std::move(members));
}

}  // namespace ulfd::engine
