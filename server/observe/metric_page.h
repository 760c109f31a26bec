// The page that Prometheus reads, while it is collected.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_METRIC_PAGE_H_
#define ULFD_SERVER_OBSERVE_METRIC_PAGE_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {

// Each sample goes to the family of its name.  `name` and `help` are literals.
class MetricPage {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  void AddCounter(const char* name, const char* help, double value, Labels labels = {});
  void AddGauge(const char* name, const char* help, double value, Labels labels = {});
  void AddHistogram(const char* name, const char* help,
                    prometheus::ClientMetric::Histogram histogram, Labels labels = {});

  // In the order of their first samples.
  const std::vector<prometheus::MetricFamily>& families() const { return families_; }
  // Prometheus' text format 0.0.4.
  std::string Text() const;

 private:
  prometheus::ClientMetric& Add(const char* name, const char* help, prometheus::MetricType type,
                                Labels labels);

  std::vector<prometheus::MetricFamily> families_;
  absl::flat_hash_map<absl::string_view, size_t> places_;  // Name -> number of the family.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_METRIC_PAGE_H_
