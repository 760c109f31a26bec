// Caffe to ULF: walks the net in its order and calls the converter of each layer type.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "tools/convert/caffe/layers.h"
#include "tools/convert/caffe/reader.h"
#include "tools/convert/convert.h"
#include "tools/convert/graph_builder.h"
#include "tools/convert/model_writer.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {

absl::StatusOr<int> CaffeNode::Axis(absl::string_view field, int64_t axis, int i) const {
  const int64_t index = axis < 0 ? axis + rank(i) : axis;
  if (index < 0 || index >= rank(i)) {
    return InvalidArgument(field, ": ", axis, ", want an axis of bottom ", i, ": shape ",
                           shape(i).ToString());
  }
  return static_cast<int>(index);
}

absl::Status CaffeNode::WantBlobs(size_t wanted, absl::string_view what) const {
  if (blobs.size() == wanted) return absl::OkStatus();
  return InvalidArgument("has ", blobs.size(), blobs.size() == 1 ? " blob" : " blobs",
                         " in the caffemodel, want ", wanted, " (", what, ")");
}

absl::Status CaffeNode::WantWeightAndBias(bool bias_term) const {
  return bias_term ? WantBlobs(2, "weight and bias") : WantBlobs(1, "weight; bias_term is false");
}

const CaffeType* FindCaffeType(absl::string_view name) {
  for (const auto table : {BasicCaffeTypes(), ShapeCaffeTypes(), VisionCaffeTypes()}) {
    for (const CaffeType& type : table) {
      if (type.name == name) return &type;
    }
  }
  return nullptr;
}

bool IsCaffePassThrough(absl::string_view type) { return type == "Dropout" || type == "Split"; }
bool IsCaffeTrainingOnly(absl::string_view type) { return type == "Silence" || type == "Accuracy"; }

namespace {

using engine::Level;

absl::Status WantCount(int found, absl::string_view noun, const Count& count) {
  if (found >= count.min && found <= count.max) return absl::OkStatus();
  return InvalidArgument(found, " ", noun, found == 1 ? "" : "s", ", want ", count.min,
                         count.max == count.min ? "" : absl::StrCat(" to ", count.max));
}

class CaffeConverter {
 public:
  CaffeConverter(const CaffeNet& net, const ConvertOptions& options, std::string source)
      : net_(net), options_(options), source_(std::move(source)), builder_(net.net.name()) {
    report_.source = absl::StrCat("Caffe net ", source_);
    report_.notes = net.notes;
  }

  absl::StatusOr<ConvertedModel> Convert() {
    for (const caffe::LayerParameter& layer : net_.net.layer()) {
      for (const std::string& top : layer.top()) builder_.Reserve(top);
    }
    FindBottomReaders();
    const int layers = net_.net.layer_size();
    for (int i = 0; i < layers; ++i) {
      if (absorbed_.contains(i)) continue;
      const caffe::LayerParameter& layer = net_.net.layer(i);
      const absl::Status status = ConvertLayer(i);
      if (!status.ok()) {
        problems_.Add(layer.name(), layer.type(), status.message());
        for (const std::string& top : layer.top()) broken_.insert(top);
      }
    }
    RETURN_IF_ERROR(problems_.ToStatus(source_));
    RETURN_IF_ERROR(CheckOptions());
    RETURN_IF_ERROR(NameOutputs());
    return std::move(builder_).Finish();
  }

  Report TakeReport() { return std::move(report_); }

 private:
  void FindBottomReaders() {
    for (const caffe::LayerParameter& layer : net_.net.layer()) {
      if (IsCaffeTrainingOnly(layer.type())) continue;
      for (const std::string& bottom : layer.bottom()) ++readers_[bottom];
    }
  }

  absl::Status ConvertLayer(int index) {
    const caffe::LayerParameter& layer = net_.net.layer(index);
    if (layer.type() == "Input") return AddInputs(layer);
    for (const std::string& bottom : layer.bottom()) {
      if (broken_.contains(bottom)) {
        // Its maker is on the list already; the tops are out of reach, too.
        for (const std::string& top : layer.top()) broken_.insert(top);
        return absl::OkStatus();
      }
      if (!current_.contains(bottom)) return UnknownBottom(index, bottom);
      unread_.erase(bottom);
    }
    if (IsCaffeTrainingOnly(layer.type())) {
      for (const std::string& top : layer.top()) broken_.insert(top);
      report_.rows.push_back({layer.name(), layer.type(), {}, "computes nothing that is served"});
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckTops(layer));
    if (IsCaffePassThrough(layer.type())) return PassThrough(layer);
    return RunConverter(index);
  }

  absl::Status RunConverter(int index) {
    const caffe::LayerParameter& layer = net_.net.layer(index);
    const CaffeType* type = FindCaffeType(layer.type());
    if (type == nullptr) return Unimplemented("no converter for this type");
    RETURN_IF_ERROR(WantCount(layer.bottom_size(), "bottom", type->bottoms));
    RETURN_IF_ERROR(WantCount(layer.top_size(), "top", type->tops));
    const absl::Span<const CaffeBlob> blobs = BlobsOf(layer);
    if (blobs.empty() && type->blobs.min > 0) {
      return InvalidArgument("has no weights in the caffemodel");
    }
    RETURN_IF_ERROR(WantCount(static_cast<int>(blobs.size()), "blob", type->blobs));
    CaffeNode node{.builder = builder_, .layer = layer, .blobs = blobs};
    for (const std::string& bottom : layer.bottom()) node.bottoms.push_back(current_.at(bottom));
    const caffe::LayerParameter* last = &layer;
    if (layer.type() == "BatchNorm") {
      if (const int scale = FindScale(index); scale >= 0) {
        absorbed_.insert(scale);
        last = node.scale = &net_.net.layer(scale);
        node.scale_blobs = BlobsOf(*last);
      }
    }
    for (const std::string& top : last->top()) node.tops.push_back(TensorFor(top));
    absl::Status status = type->convert(node);
    std::vector<std::string> added = builder_.TakeAddedTypes();
    if (!status.ok()) {
      for (const std::string& top : last->top()) broken_.insert(top);
      return status;
    }
    for (int i = 0; i < last->top_size(); ++i) Set(last->top(i), node.tops[i]);
    report_.rows.push_back({layer.name(), layer.type(), std::move(added), node.note});
    if (node.scale != nullptr) {
      report_.rows.push_back({last->name(),
                              last->type(),
                              {},
                              absl::StrCat("part of the bn_layer of \"", layer.name(), "\"")});
    }
    return absl::OkStatus();
  }

  absl::Span<const CaffeBlob> BlobsOf(const caffe::LayerParameter& layer) const {
    const auto it = net_.blobs.find(layer.name());
    return it == net_.blobs.end() ? absl::Span<const CaffeBlob>() : it->second;
  }

  // The Scale layer that alone reads what BatchNorm `index` makes; -1 if there is none.
  int FindScale(int index) const {
    const std::string& top = net_.net.layer(index).top(0);
    const bool in_place = net_.net.layer(index).bottom(0) == top;
    for (int i = index + 1; i < net_.net.layer_size(); ++i) {
      const caffe::LayerParameter& layer = net_.net.layer(i);
      if (std::find(layer.bottom().begin(), layer.bottom().end(), top) == layer.bottom().end()) {
        continue;
      }
      const caffe::ScaleParameter& p = layer.scale_param();
      const bool fits = layer.type() == "Scale" && layer.bottom_size() == 1 &&
                        layer.top_size() == 1 && p.axis() == 1 && p.num_axes() == 1;
      // Written over at once, or read by nobody else.
      const bool alone =
          layer.top_size() == 1 && (layer.top(0) == top || (!in_place && readers_.at(top) == 1));
      return fits && alone ? i : -1;
    }
    return -1;
  }

  // A blob may be written again only by a layer that reads it (in place).
  absl::Status CheckTops(const caffe::LayerParameter& layer) const {
    std::set<std::string> seen;
    for (const std::string& top : layer.top()) {
      const bool in_place =
          std::find(layer.bottom().begin(), layer.bottom().end(), top) != layer.bottom().end();
      if (seen.insert(top).second && (in_place || !current_.contains(top))) continue;
      return InvalidArgument("makes \"", top, "\", which is made already, without reading it");
    }
    return absl::OkStatus();
  }

  absl::Status UnknownBottom(int index, const std::string& bottom) const {
    for (int i = index; i < net_.net.layer_size(); ++i) {
      const caffe::LayerParameter& later = net_.net.layer(i);
      if (std::find(later.top().begin(), later.top().end(), bottom) == later.top().end()) continue;
      return InvalidArgument(
          i == index
              ? absl::StrCat("reads \"", bottom, "\", which only the layer itself makes (a cycle)")
              : absl::StrCat("reads \"", bottom, "\", which only the later layer \"", later.name(),
                             "\" makes (a cycle, or layers out of order)"));
    }
    return InvalidArgument("reads \"", bottom, "\", which no layer makes and no input declares");
  }

  absl::Status PassThrough(const caffe::LayerParameter& layer) {
    RETURN_IF_ERROR(WantCount(layer.bottom_size(), "bottom", {1, 1}));
    const std::string from = current_.at(layer.bottom(0));
    for (const std::string& top : layer.top()) Set(top, from);
    report_.rows.push_back({layer.name(), layer.type(), {}, "its tops are its bottom"});
    return absl::OkStatus();
  }

  // The tensor that a blob becomes: one of its name, which replaces an earlier one in place unless
  // another blob still means that.
  std::string TensorFor(const std::string& top) {
    for (const auto& [blob, tensor] : current_) {
      if (blob != top && tensor == top) return builder_.FreshTensor(top);
    }
    return top;
  }

  void Set(const std::string& blob, const std::string& tensor) {
    if (!current_.contains(blob)) order_.push_back(blob);
    current_[blob] = tensor;
    unread_.insert(blob);
  }

  absl::Status AddInputs(const caffe::LayerParameter& layer) {
    const caffe::InputParameter& p = layer.input_param();
    if (p.shape_size() != 1 && p.shape_size() != layer.top_size()) {
      return InvalidArgument("input_param.shape: ", p.shape_size(),
                             " shapes, want 1 or one for each of ", layer.top_size(), " tops");
    }
    RETURN_IF_ERROR(CheckTops(layer));
    for (int i = 0; i < layer.top_size(); ++i) {
      const std::string& top = layer.top(i);
      const caffe::BlobShape& shape = p.shape(p.shape_size() == 1 ? 0 : i);
      const std::vector<int64_t> dims(shape.dim().begin(), shape.dim().end());
      if (dims.size() < 2 || *std::min_element(dims.begin(), dims.end()) < 1) {
        return InvalidArgument("input \"", top, "\": shape ", engine::ToString(dims),
                               ", want rows and at least one more dimension, each 1 or more");
      }
      const bool user = Lists(options_.user_inputs, top);
      RETURN_IF_ERROR(builder_.AddInput(top, user ? Level::kUser : Level::kAd,
                                        absl::MakeConstSpan(dims).subspan(1)));
      Set(top, top);
      unread_.erase(top);  // An input that nothing reads is no output.
      inputs_.insert(top);
      report_.AddInput(
          user ? Level::kUser : Level::kAd,
          absl::StrCat(top, " ", builder_.Find(top)->shape.ToString(),
                       user || Lists(options_.ad_inputs, top) ? "" : " (a row per ad by default)"));
    }
    report_.rows.push_back({layer.name(), layer.type(), {"input_layer"}, ""});
    return absl::OkStatus();
  }

  static bool Lists(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  absl::Status CheckOptions() const {
    if (!options_.dims.empty()) {
      return InvalidArgument("--dims: a Caffe net has no symbolic dimensions");
    }
    if (!options_.schema.empty()) {
      return InvalidArgument("--schema: inputs of a Caffe net have names");
    }
    for (const auto* names : {&options_.user_inputs, &options_.ad_inputs}) {
      for (const std::string& name : *names) {
        if (inputs_.contains(name)) continue;
        return InvalidArgument(
            names == &options_.user_inputs ? "--user_inputs" : "--ad_inputs", " names \"", name,
            "\", which is no input of the net; its inputs: ", absl::StrJoin(inputs_, ", "));
      }
    }
    for (const std::string& name : options_.user_inputs) {
      if (!Lists(options_.ad_inputs, name)) continue;
      return InvalidArgument("input \"", name, "\" is in --user_inputs and --ad_inputs");
    }
    return absl::OkStatus();
  }

  // Blobs that nothing reads, in the order of the net, under their own names.
  absl::Status NameOutputs() {
    for (const std::string& blob : order_) {
      if (!unread_.contains(blob) || broken_.contains(blob)) continue;
      const std::string tensor = current_.at(blob);
      if (tensor != blob) {
        RETURN_IF_ERROR(AddRename(builder_, absl::StrCat(blob, "/name"), tensor, blob));
      }
      builder_.model().manifest.add_outputs(blob);
      report_.outputs.push_back(absl::StrCat(blob, " ", builder_.Find(blob)->shape.ToString()));
    }
    if (report_.outputs.empty()) {
      return InvalidArgument(source_, ": no layer makes an output");
    }
    return absl::OkStatus();
  }

  const CaffeNet& net_;
  const ConvertOptions& options_;
  const std::string source_;
  GraphBuilder builder_;
  Report report_;
  Problems problems_;
  HashMap<std::string, int> readers_;          // Of a blob, in the whole net.
  HashMap<std::string, std::string> current_;  // Blob -> tensor, at this layer.
  std::vector<std::string> order_;             // Blobs, as they were made first.
  std::set<std::string> unread_, broken_, inputs_;
  std::set<int> absorbed_;  // Layers that became part of an earlier one.
};

}  // namespace

absl::StatusOr<Report> ConvertCaffe(const std::string& net_path, const std::string& weights_path,
                                    const std::string& out, const ConvertOptions& options) {
  ASSIGN_OR_RETURN(const CaffeNet net, ReadCaffe(net_path, weights_path));
  CaffeConverter converter(net, options, net_path);
  ASSIGN_OR_RETURN(const ConvertedModel model, converter.Convert());
  Report report = converter.TakeReport();
  RETURN_IF_ERROR(WriteModel(
      model, net_path, [&](const engine::Model&) { return report.ToString(); }, out));
  return report;
}

}  // namespace ulfd::convert
