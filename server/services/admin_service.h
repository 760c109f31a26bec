// ulfd.admin.v1.AdminService: the state of the server, a reload on demand, and changes of what is
// served.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_ADMIN_SERVICE_H_
#define ULFD_SERVER_SERVICES_ADMIN_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "proto/admin.grpc.pb.h"
#include "server/models/model_change.h"
#include "server/models/model_manager.h"
#include "server/rpc/call_receiver.h"
#include "server/scheduler/clock.h"
#include "server/services/status_report.h"
#include "server/system/background_queue.h"

namespace ulfd::server {

// A reload takes as long as loading takes: it waits on a thread of this class, never on one that
// receives calls or a worker.  Changes wait nowhere: the manager's loader thread answers them.
class AdminService final : public RpcServiceOf<AdminService, ulfd::admin::v1::AdminService> {
 public:
  // Reloads that wait behind the one that runs; more are refused with RESOURCE_EXHAUSTED.
  static constexpr int kMaxWaiting = 8;
  // Reads the configuration anew: a change of kind kConfigure, or why it cannot be one.  Called on
  // the manager's loader thread; what it uses outlives the manager.
  using ReadConfigure = std::function<absl::StatusOr<ModelChange>()>;

  AdminService(ModelManager& models, const StatusReport& report, const Clock& clock,
               ReadConfigure read_configure);
  // Ends calls that wait with UNAVAILABLE, then joins the thread.
  ~AdminService() override;
  // The first half of the destructor, for a server that waits for its calls.  A change that is
  // being carried out goes on.
  void Stop();

  void AwaitCalls(CallReceiver& receiver) override;

 private:
  template <typename Request, typename Response>
  using Call = UnaryCall<Request, Response>;
  using ReloadCall =
      Call<ulfd::admin::v1::ReloadRepositoryRequest, ulfd::admin::v1::ReloadRepositoryResponse>;

  void GetStatus(Call<ulfd::admin::v1::GetStatusRequest, ulfd::admin::v1::GetStatusResponse>& call);
  void ReloadRepository(ReloadCall& call);
  // LoadModel, UnloadModel, SetLabel, Rollback.
  template <typename Request, typename Response>
  void ChangeModels(Call<Request, Response>& call);
  void ReloadConfig(
      Call<ulfd::admin::v1::ReloadConfigRequest, ulfd::admin::v1::ReloadConfigResponse>& call);

  class Change;
  // Null: the service stops, and the call is answered.
  std::shared_ptr<Change> Track(RpcCall& call);
  // Until what is due is loaded, or nobody waits any more.
  absl::Status WaitForLoads(Change& reload, TimePoint deadline) const;
  // Has the manager carry out what `make` returns, which may block; the reply is filled and sent
  // when it is done.
  template <typename Request, typename Response>
  void Apply(Call<Request, Response>& call, std::function<absl::StatusOr<ModelChange>()> make);

  ModelManager& models_;
  const StatusReport& report_;
  const Clock& clock_;
  const ReadConfigure read_configure_;

  std::atomic<int> waiting_{0};  // Reloads.
  Mutex mu_;
  std::vector<std::weak_ptr<Change>> changes_ ABSL_GUARDED_BY(mu_);  // Not answered yet, at least.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  BackgroundQueue reloads_{"ulfd-reload"};  // Last: its thread uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_ADMIN_SERVICE_H_
