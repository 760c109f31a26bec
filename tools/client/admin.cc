// ulf admin: tells a running daemon what to serve, through its AdminService.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/closest_names.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "proto/admin.grpc.pb.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/cli/text_table.h"
#include "tools/client/connection.h"

namespace ulfd::tools {
namespace {

namespace v1 = ulfd::admin::v1;
using Versions = google::protobuf::RepeatedPtrField<v1::VersionChange>;

constexpr char kDescription[] =
    R"(ADDRESS is the admin_address of the daemon's configuration: HOST:PORT or unix:PATH.

  status                         what serves, what does not, and why
  reload                         looks at the model repository now
  load MODEL [VERSION]           loads and serves a version; ends its quarantine
  unload MODEL [VERSION]         takes a version, or the whole model, out of service
  label MODEL LABEL [VERSION]    ties a label to a version; without one: takes it away
  rollback MODEL [VERSION]       goes back to the version before, or to an --epoch of one
  reload-config                  serves what the configuration file says now, all or nothing

Each change waits until everything it needs is loaded, checked and published.  Exit code 1:
it was refused, and nothing has changed.)";

// What every action needs.
struct Admin {
  const Connection& server;
  absl::Duration timeout;
  bool dry_run = false;
  int64_t epoch = -1;             // -1: none is given.
  std::vector<std::string> args;  // After the action.
};

template <typename Request, typename Reply>
using Method = grpc::Status (v1::AdminService::Stub::*)(grpc::ClientContext*, const Request&,
                                                        Reply*);

// Makes one call.
template <typename Request, typename Reply>
absl::StatusOr<Reply> Call(const Admin& admin, Method<Request, Reply> method,
                           absl::string_view name, const Request& request) {
  return tools::Call<v1::AdminService>(admin.server, method, name, request, admin.timeout);
}

absl::StatusOr<int64_t> ParseVersion(const std::string& text) {
  int64_t version = 0;
  if (!absl::SimpleAtoi(text, &version) || version < 1) {
    return UsageError("version \"", text, "\", want a positive number");
  }
  return version;
}

// Sets name and, if it is given, version; `from`: where the version stands.
template <typename Request>
absl::Status SetModel(const Admin& admin, size_t from, Request& request) {
  request.set_name(admin.args[0]);
  if (admin.args.size() <= from) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t version, ParseVersion(admin.args[from]));
  request.set_version(version);
  return absl::OkStatus();
}

std::string Word(v1::VersionChange::Outcome outcome) {
  switch (outcome) {
    case v1::VersionChange::OUTCOME_LOADED:
      return "loaded";
    case v1::VersionChange::OUTCOME_ALREADY_SERVING:
      return "serves already";
    case v1::VersionChange::OUTCOME_UNLOADED:
      return "unloaded";
    case v1::VersionChange::OUTCOME_DISCARDED:
      return "could be loaded, not published";
    case v1::VersionChange::OUTCOME_FAILED:
      return "refused";
    default:
      return "unknown";
  }
}

void PrintVersions(const std::string& model, const Versions& versions) {
  for (const v1::VersionChange& version : versions) {
    Print(stdout, absl::StrCat(model, " v", version.version(), ": ", Word(version.outcome()),
                               version.error().empty() ? "" : ": ",
                               Clipped(version.error(), kMaxKeptErrorBytes), "\n"));
  }
}

// Makes a call that changes one model, and prints what became of its versions.
template <typename Request, typename Reply>
absl::StatusOr<Reply> Change(const Admin& admin, Method<Request, Reply> method,
                             absl::string_view name, const Request& request) {
  ASSIGN_OR_RETURN(Reply reply, Call(admin, method, name, request));
  PrintVersions(request.name(), reply.versions());
  Print(stdout, Clipped(reply.notice(), kMaxKeptErrorBytes) + "\n");
  return reply;
}

absl::Status Load(const Admin& admin) {
  v1::LoadModelRequest request;
  RETURN_IF_ERROR(SetModel(admin, 1, request));
  return Change(admin, &v1::AdminService::Stub::LoadModel, "LoadModel", request).status();
}

absl::Status Unload(const Admin& admin) {
  v1::UnloadModelRequest request;
  RETURN_IF_ERROR(SetModel(admin, 1, request));
  ASSIGN_OR_RETURN(const auto reply,
                   Change(admin, &v1::AdminService::Stub::UnloadModel, "UnloadModel", request));
  if (reply.versions().empty()) Print(stdout, request.name() + ": did not serve\n");
  return absl::OkStatus();
}

absl::Status Label(const Admin& admin) {
  v1::SetLabelRequest request;
  request.set_label(admin.args[1]);
  RETURN_IF_ERROR(SetModel(admin, 2, request));
  ASSIGN_OR_RETURN(const auto reply,
                   Change(admin, &v1::AdminService::Stub::SetLabel, "SetLabel", request));
  const std::string before =
      reply.has_previous_version() ? absl::StrCat("v", reply.previous_version()) : "nothing";
  const std::string now = request.has_version() ? absl::StrCat("v", request.version()) : "nothing";
  Print(stdout, absl::StrCat(request.name(), " label \"", request.label(), "\": ", before, " -> ",
                             now, "\n"));
  return absl::OkStatus();
}

absl::Status Rollback(const Admin& admin) {
  v1::RollbackRequest request;
  RETURN_IF_ERROR(SetModel(admin, 1, request));
  if (admin.epoch >= 0) request.set_epoch(admin.epoch);
  ASSIGN_OR_RETURN(const auto reply,
                   Change(admin, &v1::AdminService::Stub::Rollback, "Rollback", request));
  Print(stdout, absl::StrCat(request.name(), ": v", reply.from_version(), " -> v",
                             reply.to_version(), "\n"));
  return absl::OkStatus();
}

absl::Status ReloadConfig(const Admin& admin) {
  v1::ReloadConfigRequest request;
  request.set_dry_run(admin.dry_run);
  ASSIGN_OR_RETURN(const auto reply,
                   Call(admin, &v1::AdminService::Stub::ReloadConfig, "ReloadConfig", request));
  for (const v1::ModelChange& model : reply.models()) {
    const std::string what = !model.error().empty() ? Clipped(model.error(), kMaxKeptErrorBytes)
                             : model.removed()      ? "removed"
                                                    : "configured";
    Print(stdout, absl::StrCat(model.name(), ": ", what, "\n"));
    PrintVersions(model.name(), model.versions());
  }
  if (!reply.applied()) {
    return FailedPrecondition("not applied: the configuration in force is the old one");
  }
  Print(stdout,
        absl::StrCat(admin.dry_run ? "would be applied" : "applied", ": ", reply.models_size(),
                     " models changed, generation ", reply.generation(), "\n"));
  return absl::OkStatus();
}

void PrintModels(const google::protobuf::RepeatedPtrField<ulfd::v1::ModelStatus>& models) {
  TextTable table({"MODEL", "VERSION", "STATE", "SERVES", "EPOCH>", "LABELS", "MIB>", "WHY"});
  for (const ulfd::v1::ModelStatus& model : models) {
    if (model.versions().empty())
      table.AddRow({model.name(), "", "", "", "", "", "", model.error()});
    for (const ulfd::v1::VersionStatus& version : model.versions()) {
      std::string state = NameOr(ulfd::v1::VersionState_Name(version.state()), version.state());
      state = std::string(absl::StripPrefix(state, "VERSION_STATE_"));
      if (version.has_quarantine()) absl::StrAppend(&state, " (quarantine)");
      table.AddRow(
          {model.name(), absl::StrCat(version.version()), state,
           version.serving() ? absl::StrCat("yes, since generation ", version.generation()) : "no",
           version.epoch() > 0 ? absl::StrCat(version.epoch()) : "",
           absl::StrJoin(version.labels(), ","),
           version.serving() ? absl::StrCat((version.memory_bytes() + 1048575) / 1048576) : "",
           version.error()});
    }
  }
  Print(stdout, table.ToString());
}

absl::Status Status(const Admin& admin) {
  ASSIGN_OR_RETURN(const auto reply, Call(admin, &v1::AdminService::Stub::GetStatus, "GetStatus",
                                          v1::GetStatusRequest()));
  const v1::ServerFacts& server = reply.server();
  Print(stdout,
        absl::StrCat("ulfd ", server.version(), ", ",
                     server.draining() ? "draining" : (server.ready() ? "ready" : "not ready"),
                     ", up ", server.uptime().seconds(), " s, generation ", reply.generation(),
                     ", ", server.workers(), " workers, ", server.busy_workers(), " busy, ",
                     server.queued_requests(), " requests wait\n"));
  PrintModels(reply.models());
  return absl::OkStatus();
}

absl::Status Reload(const Admin& admin) {
  ASSIGN_OR_RETURN(const auto reply, Call(admin, &v1::AdminService::Stub::ReloadRepository,
                                          "ReloadRepository", v1::ReloadRepositoryRequest()));
  PrintModels(reply.models());
  Print(stdout, absl::StrCat("generation ", reply.generation_before(), " -> ",
                             reply.generation_after(), "\n"));
  return absl::OkStatus();
}

struct Action {
  absl::string_view name;
  absl::Status (*run)(const Admin& admin);
  size_t min_args, max_args;
};

constexpr Action kActions[] = {
    {"status", &Status, 0, 0},
    {"reload", &Reload, 0, 0},
    {"load", &Load, 1, 2},
    {"unload", &Unload, 1, 2},
    {"label", &Label, 2, 3},
    {"rollback", &Rollback, 1, 2},
    {"reload-config", &ReloadConfig, 0, 0},
};

}  // namespace

absl::Status RunAdmin(Args args) {
  absl::Duration timeout = absl::Minutes(10);
  bool dry_run = false;
  int64_t epoch = -1;
  FlagSet flags("ulf admin ADDRESS ACTION [MODEL [LABEL] [VERSION]]", kDescription);
  flags.Add("timeout", "How long to wait for a change; it goes on afterwards.", &timeout,
            kShortestTimeout);
  flags.Add("dry_run", "reload-config: loads and checks everything, and changes nothing.",
            &dry_run);
  flags.Add("epoch", "rollback: to this epoch of the version's deltas; 0: without deltas.", &epoch,
            0, std::numeric_limits<int64_t>::max());
  const ConnectionFlags connection_flags(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 2, 5));
  const auto action = std::find_if(std::begin(kActions), std::end(kActions),
                                   [&](const Action& a) { return a.name == positional[1]; });
  if (action == std::end(kActions)) {
    std::vector<absl::string_view> known;
    for (const Action& a : kActions) known.push_back(a.name);
    return UsageError("unknown action \"", positional[1], "\"", DidYouMean(positional[1], known));
  }
  RETURN_IF_ERROR(flags.Only(action->name == "reload-config", "reload-config", {"dry_run"}));
  RETURN_IF_ERROR(flags.Only(action->name == "rollback", "rollback", {"epoch"}));
  const std::vector<std::string> rest(positional.begin() + 2, positional.end());
  if (rest.size() < action->min_args || rest.size() > action->max_args) {
    return UsageError(positional[1], ": ", rest.size(), " arguments");
  }
  ASSIGN_OR_RETURN(const Connector connector, Connector::Create(connection_flags));
  RETURN_IF_ERROR(CheckTarget(positional[0]));
  const Connection server = connector.Connect(positional[0]);
  return action->run(Admin{server, timeout, dry_run, epoch, rest});
}

}  // namespace ulfd::tools
