// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metric_page.h"

#include <prometheus/text_serializer.h>

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace ulfd::server {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

constexpr absl::string_view kTotal = "_total";  // How the name of a counter ends.

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}});
}

// Whole numbers are written as "1.0": readers compare the bounds of buckets as text.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return absl::StrFormat("%.1f", value);
  }
  std::string shortest = absl::StrFormat("%.15g", value);
  return std::stod(shortest) == value ? shortest : absl::StrFormat("%.17g", value);
}

// "{a="1",le="2.0"}"; `bound`: nullptr, or of a bucket.
std::string LabelText(const MetricPage::Labels& labels, const double* bound) {
  std::string text;
  for (const ClientMetric::Label& label : labels) {
    absl::StrAppend(&text, text.empty() ? "" : ",", label.name, "=\"", Escaped(label.value), "\"");
  }
  if (bound != nullptr) {
    absl::StrAppend(&text, text.empty() ? "" : ",", "le=\"", Number(*bound), "\"");
  }
  return text.empty() ? "" : absl::StrCat("{", text, "}");
}

void AppendHistogram(const std::string& name, const ClientMetric& sample,
                     const std::vector<Exemplar>* exemplars, std::string& out) {
  const auto bucket = [&](size_t i, double bound, uint64_t count) {
    absl::StrAppend(&out, name, "_bucket", LabelText(sample.label, &bound), " ", count);
    if (exemplars != nullptr && !(*exemplars)[i].trace_id.empty()) {
      const Exemplar& of = (*exemplars)[i];
      absl::StrAppend(&out, " # {trace_id=\"", of.trace_id, "\"} ", Number(of.value), " ",
                      absl::StrFormat("%.3f", of.time));
    }
    out += '\n';
  };
  const ClientMetric::Histogram& histogram = sample.histogram;
  for (size_t i = 0; i < histogram.bucket.size(); ++i) {
    bucket(i, histogram.bucket[i].upper_bound, histogram.bucket[i].cumulative_count);
  }
  bucket(histogram.bucket.size(), std::numeric_limits<double>::infinity(), histogram.sample_count);
  const std::string labels = LabelText(sample.label, nullptr);
  absl::StrAppend(&out, name, "_sum", labels, " ", Number(histogram.sample_sum), "\n");
  absl::StrAppend(&out, name, "_count", labels, " ", histogram.sample_count, "\n");
}

}  // namespace

void MetricPage::AddCounter(const char* name, const char* help, double value, Labels labels) {
  Add(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
}

void MetricPage::AddGauge(const char* name, const char* help, double value, Labels labels) {
  Add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
}

void MetricPage::AddHistogram(const char* name, const char* help, ClientMetric::Histogram histogram,
                              Labels labels) {
  Add(name, help, MetricType::Histogram, std::move(labels)).histogram = std::move(histogram);
}

void MetricPage::AddHistogram(const char* name, const char* help, ClientMetric::Histogram histogram,
                              Labels labels, std::vector<Exemplar> exemplars) {
  AddHistogram(name, help, std::move(histogram), std::move(labels));
  const size_t family = places_.at(name);
  exemplars_[{family, families_[family].metric.size() - 1}] = std::move(exemplars);
}

std::string MetricPage::OpenMetricsText() const {
  std::string out;
  for (size_t f = 0; f < families_.size(); ++f) {
    const MetricFamily& family = families_[f];
    // A counter's family lacks the suffix that its samples have, and may not be another's then.
    const absl::string_view stem = absl::StripSuffix(family.name, kTotal);
    const bool counter = family.type == MetricType::Counter;
    const bool clash = counter && places_.contains(stem);
    const bool histogram = family.type == MetricType::Histogram;
    const char* type = clash ? "unknown" : counter ? "counter" : histogram ? "histogram" : "gauge";
    const absl::string_view name = counter && !clash ? stem : absl::string_view(family.name);
    absl::StrAppend(&out, "# TYPE ", name, " ", type, "\n# HELP ", name, " ", Escaped(family.help),
                    "\n");
    for (size_t s = 0; s < family.metric.size(); ++s) {
      const ClientMetric& sample = family.metric[s];
      if (histogram) {
        const auto exemplars = exemplars_.find({f, s});
        AppendHistogram(family.name, sample,
                        exemplars == exemplars_.end() ? nullptr : &exemplars->second, out);
        continue;
      }
      absl::StrAppend(&out, family.name, LabelText(sample.label, nullptr), " ",
                      Number(counter ? sample.counter.value : sample.gauge.value), "\n");
    }
  }
  return out + "# EOF\n";
}

std::string MetricPage::Text() const { return prometheus::TextSerializer().Serialize(families_); }

ClientMetric& MetricPage::Add(const char* name, const char* help, MetricType type, Labels labels) {
  const auto [place, is_new] = places_.try_emplace(name, families_.size());
  if (is_new) families_.push_back({name, help, type, {}});
  ClientMetric& sample = families_[place->second].metric.emplace_back();
  sample.label = std::move(labels);
  return sample;
}

}  // namespace ulfd::server
