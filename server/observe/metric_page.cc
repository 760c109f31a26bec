// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metric_page.h"

#include <prometheus/text_serializer.h>

#include <utility>

namespace ulfd::server {

using prometheus::ClientMetric;
using prometheus::MetricType;

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

std::string MetricPage::Text() const { return prometheus::TextSerializer().Serialize(families_); }

ClientMetric& MetricPage::Add(const char* name, const char* help, MetricType type, Labels labels) {
  const auto [place, is_new] = places_.try_emplace(name, families_.size());
  if (is_new) families_.push_back({name, help, type, {}});
  ClientMetric& sample = families_[place->second].metric.emplace_back();
  sample.label = std::move(labels);
  return sample;
}

}  // namespace ulfd::server
