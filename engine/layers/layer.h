// The layer contract: how a layer type is described, loaded, inferred, lowered, prepared and run.
//
// Life of a layer: Parse (typed parameters, everything validated) -> Infer (the only place where
// shapes and levels are computed: at load with symbolic dimensions, on a request with numbers) ->
// Lower (composite types) or Prepare (weights laid out for speed) -> Run (const, shared by all
// workers, no locks).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_LAYER_H_
#define ULFD_ENGINE_LAYERS_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/embedding/table.h"
#include "engine/kernels/product.h"
#include "engine/layers/semantics.h"
#include "engine/tensor/pace.h"
#include "engine/tensor/tensor.h"
#include "engine/weights/weights.h"
#include "proto/embedding.pb.h"
#include "proto/ulf.pb.h"

namespace ulfd::engine {

// Counts of one request that kernels add to.  Not thread-safe: one per worker.
struct RunCounters {
  // Ids that were looked up, and those of them that the table lacked; indexed by
  // ModelResources::TableRef::index.
  std::vector<int64_t> looked_up_ids, missing_ids;
};

// What a kernel gets.  Inputs and outputs have the concrete shapes that Infer gave; outputs and
// scratch are not zeroed. An output never overlaps an input, except where Kernel::IsView() (then
// Run is not called).
struct RunContext {
  absl::Span<const Tensor> in;
  absl::Span<Tensor> out;
  void* scratch = nullptr;          // Kernel::ScratchBytes() bytes, 64-byte aligned.
  RunCounters* counters = nullptr;  // Never null while a kernel runs.
  // By ModelResources::TableRef::index: those of the model that runs.
  absl::Span<const std::shared_ptr<const EmbeddingTable>> tables;
  // For kernels whose work grows faster than their tensors.  Once it stops they return OK.
  Pace pace = {};
  // Where lookups find rows of tables that have a tier; null: all of them are late.
  const FetchedRows* fetched = nullptr;
};

// Run-time half of a layer: immutable, shared by every worker thread.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Scratch that Run needs for these inputs.
  virtual size_t ScratchBytes(absl::Span<const Tensor> in) const { return 0; }
  // True: output 0 is input 0 under another shape; the executor shares the memory and does not call
  // Run.
  virtual bool IsView() const { return false; }
  // Memory that the kernel alone holds (copies of weights laid out for speed).
  virtual int64_t bytes() const { return 0; }
  // Products with weights, for which the owner of the plan chooses a backend before the first Run.
  virtual std::vector<Product*> products() { return {}; }
  // Makes products with weights be computed in bf16 or int8, or, by kAuto, in bf16 those that are
  // faster so for `rows` rows.  The owner of the plan calls it before products() choose, at most
  // once.  REQUIRES: Has(precision).
  virtual void SetPrecision(Precision precision, int64_t rows) {
    for (Product* product : products()) product->SetPrecision(precision, rows);
  }
  // The lowest that any product with weights is computed in; nothing: there is none.
  virtual std::optional<Precision> precision() {
    std::optional<Precision> precision;
    for (const Product* product : products()) {
      precision = std::max(precision.value_or(Precision::kFp32), product->precision());
    }
    return precision;
  }
  // REQUIRES: the calling thread has one OpenMP thread (see engine/tensor/onednn.h).
  virtual absl::Status Run(RunContext& ctx) const = 0;
};

class Layer;

// What a layer is made of: primitive layers in an order in which every value is computed before it
// is read.
class Lowering {
 public:
  // Values are numbered: the layer's inputs first, then what the parts make.
  using Value = int;
  struct Part {
    std::string suffix;  // Appended to the layer's name in messages.
    std::shared_ptr<const Layer> layer;
    std::vector<Value> inputs;
    int outputs = 1;
  };

  // For a layer with so many inputs and outputs.
  Lowering(int inputs, int outputs) : inputs_(inputs), outputs_(outputs, -1), values_(inputs) {}
  int inputs() const { return inputs_; }
  const std::vector<Part>& parts() const { return parts_; }
  // Per output of the layer: the value that it is; -1: not said.
  const std::vector<Value>& outputs() const { return outputs_; }

  // Adds a layer, and gives its output, or the first of several.
  Value Add(std::string suffix, std::shared_ptr<const Layer> layer, std::vector<Value> inputs,
            int outputs = 1) {
    parts_.push_back({std::move(suffix), std::move(layer), std::move(inputs), outputs});
    values_ += outputs;
    return values_ - outputs;
  }
  void SetOutput(int i, Value value) { outputs_[i] = value; }

 private:
  const int inputs_;
  std::vector<Part> parts_;
  std::vector<Value> outputs_;
  int values_;
};

// Load-time half of a layer: typed parameters, const after Parse.
class Layer {
 public:
  virtual ~Layer() = default;
  // Shapes, types and levels of the outputs.  Works on symbolic and on concrete shapes alike; the
  // caller guarantees that every input is ranked (an input of unknown rank makes the outputs
  // unknown without a call) and that the arity is right.  Must not accept what Run cannot do: a
  // concrete shape that passes Infer runs.
  virtual absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const = 0;
  // For inputs of the graph that nothing describes: fills in what this layer would expect of its
  // inputs (their dtype, rank, widths, level).  Only a guess for metadata and warm-up calls; leaves
  // alone what it cannot tell.
  virtual void SuggestInputs(absl::Span<TensorSpec> in) const {}
  // Composite and decomposable types only: expresses the layer through others.
  virtual absl::Status Lower(Lowering& lowering) const;
  // Primitive types only: makes the kernel.  `in` are the specs known at load.
  virtual absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const;
  // The layer's function as data, for graph passes.  kOther: passes leave the layer alone.
  virtual Semantics semantics() const { return {}; }
  // Floating-point operations of one run, from concrete shapes.  Estimates for explanations and
  // cost checks; by default one per element of the outputs.
  virtual double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const;
  // The same layer without weights of its own, for describing it once its kernel is made; null: it
  // holds none.  Only Infer, Flops, Describe and semantics() without weights may be called.
  virtual std::shared_ptr<const Layer> WithoutWeights() const { return nullptr; }
  // Parameters and weights for people: "transpose=true bias_term=true weight=[128, 264]".  May be
  // empty.
  virtual std::string Describe() const { return ""; }
};

// What the loader wants the owner of the model to know although the model is served.
using Notices = std::vector<std::string>;

// Files that a layer may ask for while it is parsed.
class ModelResources {
 public:
  struct TableRef {
    // As it is now: a delta puts another one of the same dim in its place.
    const EmbeddingTable* table = nullptr;
    int index = 0;  // Into RunContext::tables and the vectors of RunCounters.
  };
  virtual ~ModelResources() = default;
  // The parsed configuration at `path` (relative to the graph).  Read once per model.
  virtual absl::StatusOr<const blaze::EmbeddingConfig*> EmbeddingConf(const std::string& path) = 0;
  // The table of that name.  Loaded once per model.  NOT_FOUND if there is no such file.
  virtual absl::StatusOr<TableRef> Table(const std::string& name) = 0;
};

struct LayerType;
class PackedWeights;  // engine/layers/common/packed_weights.h

// Everything that Parse may look at.
struct ParseContext {
  const ulf::LayerParameter& param;
  LayerWeights weights;  // Valid for the life of the model.
  ModelResources& resources;
  Notices& notices;        // Without the layer's name; the graph adds it.
  bool guide_eps = false;  // eps_defaults GUIDE: bn and dice without an explicit eps use 0.01.
  bool trunc_all = false;  // Truncation applies to sum and avg, too.
  absl::Span<const LayerType* const> more_types = {};  // Of plug-ins.
  PackedWeights* packed = nullptr;  // Where matrices are laid out; null: each layer does it.
};
using ParseFn = absl::StatusOr<std::unique_ptr<Layer>>(const ParseContext& ctx);

struct Arity {
  int min = 0;
  int max = 0;
  static constexpr int kAny = 1 << 20;
};

// What `ulf layers NAME` says about a type beyond its summary, arity and parameters; one line per
// input and per weight.
struct LayerDoc {
  absl::string_view formula, inputs, weights, source;
  // An example that loads.  Inputs, separated by ";": name, "@user" if it has one row, ":" and the
  // dimensions after the rows ("x:3,8,8;u@user:4"); "+" before a name: no bottom of the layer.
  // Weights: their dimensions ("4,3,1,1;4").
  absl::string_view example_inputs, example_weights;
  absl::string_view example_param;  // The *_param message as text.
  absl::string_view example_files;  // Further files, "name|text|name|text".
  absl::string_view example_tail;   // Layers behind it, as text.
};

// One row per layer type; the loader, the docs and the tests are driven from it.
struct LayerType {
  absl::string_view name;     // ulf.LayerParameter.type
  absl::string_view summary;  // One line for `ulf inspect --types` and the docs.
  Arity inputs{1, 1}, outputs{1, 1}, weights;
  int param_field = 0;     // Field number of the only *_param message it may carry; 0: none.
  bool composite = false;  // true: Lower is implemented; false: Prepare is.
  ParseFn* parse = nullptr;
  // Further published names, accepted without a notice; separated by spaces.
  absl::string_view aliases = "";
  int other_param_field = 0;  // A second *_param message that it may carry; 0: none.
  bool decomposable = false;  // Not composite, but Lower gives the same result from other layers.
  // Inputs and outputs that are images [rows, channels, height, width]: bit i for input (output) i.
  // In a model of layout NHWC these are transposed on the way.  Primitive types only.
  uint32_t image_inputs = 0, image_outputs = 0;
  // Weight 0 is a kernel over images, [num_output, channels / group, kernel_h, kernel_w].
  bool kernel_weight = false;
  LayerDoc doc;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_LAYER_H_
