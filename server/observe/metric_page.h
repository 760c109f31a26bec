// The page that Prometheus reads, while it is collected.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_METRIC_PAGE_H_
#define ULFD_SERVER_OBSERVE_METRIC_PAGE_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {

// One observation of a bucket whose call was traced.
struct Exemplar {
  std::string trace_id;  // 32 hexadecimal digits; empty: the bucket has none.
  double value = 0;      // In the histogram's unit.
  double time = 0;       // Unit: seconds since 1970.
};

// Each sample goes to the family of its name.  `name` and `help` are literals.
class MetricPage {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  void AddCounter(const char* name, const char* help, double value, Labels labels = {});
  void AddGauge(const char* name, const char* help, double value, Labels labels = {});
  void AddHistogram(const char* name, const char* help,
                    prometheus::ClientMetric::Histogram histogram, Labels labels = {});
  // `exemplars`: per bound, and one for "+Inf".
  void AddHistogram(const char* name, const char* help,
                    prometheus::ClientMetric::Histogram histogram, Labels labels,
                    std::vector<Exemplar> exemplars);

  // In the order of their first samples.
  const std::vector<prometheus::MetricFamily>& families() const { return families_; }
  // Prometheus' text format 0.0.4, which has no exemplars.
  std::string Text() const;
  // OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/).
  std::string OpenMetricsText() const;

 private:
  prometheus::ClientMetric& Add(const char* name, const char* help, prometheus::MetricType type,
                                Labels labels);

  std::vector<prometheus::MetricFamily> families_;
  absl::flat_hash_map<absl::string_view, size_t> places_;  // Name -> number of the family.
  std::map<std::pair<size_t, size_t>, std::vector<Exemplar>> exemplars_;  // (family, sample)
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_METRIC_PAGE_H_
