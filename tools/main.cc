// ulf: the command line beside the daemon.
//
// Exit codes: 0 done; 1 what was asked for failed; 2 the command line is wrong.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/closest_names.h"
#include "base/flags/flag_set.h"
#include "base/load_scope.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"

namespace ulfd::tools {
namespace {

struct Command {
  absl::string_view name;
  absl::string_view summary;  // One line for `ulf help`.
  // `args` are those after the command's name.  Prints results to standard output.
  absl::Status (*run)(Args args) = nullptr;
};

constexpr Command kCommands[] = {
    {"inspect", "shows what a model directory holds: layers, shapes, inputs, outputs, memory",
     &RunInspect},
    {"explain", "shows how a model is executed: what was rewritten, in which steps, at what cost",
     &RunExplain},
    {"score", "scores the inputs of an npz file offline, with the engine of the daemon", &RunScore},
    {"quantise",
     "measures what bf16 or int8 does to a model's scores, and writes the manifest for it",
     &RunQuantise},
    {"compare", "compares golden tensors with ours, or the scores of two versions", &RunCompare},
    {"layers", "lists the layer types, or says everything about one, with an example", &RunLayers},
    {"table", "builds, shows, checks and exports table files (*.ulft)", &RunTable},
    {"sync", "copies versions from a directory, web server or object store into a repository",
     &RunSync},
    {"predict", "calls a running daemon and prints the scores", &RunPredict},
    {"load", "offers load to a running server and reports latencies and failures", &RunLoad},
    {"recordings", "lists the calls that the daemon recorded, or takes one out as npz files",
     &RunRecordings},
    {"admin", "tells a running daemon what to serve: load, unload, label, rollback, reload-config",
     &RunAdmin},
    {"health", "asks a running daemon whether it serves", &RunHealth},
    {"convert", "turns a Caffe or ONNX model into a version directory", &RunConvert},
    {"make-demo", "writes a demo model whose scores make sense to a reader", &RunMakeDemo},
};

void PrintHelp(std::FILE* out) {
  std::fputs("ulf: inspects, scores and calls ULF ranking models\n\nusage: ulf COMMAND ...\n\n",
             out);
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-10s %s\n", std::string(command.name).c_str(),
                 std::string(command.summary).c_str());
  }
  std::fputs("\n`ulf COMMAND --help` explains a command and its flags.\n", out);
}

int Run(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) {
    PrintHelp(stderr);
    return 2;
  }
  if (args[0] == "help" || args[0] == "--help" || args[0] == "-h") {
    if (args.size() == 1) {
      PrintHelp(stdout);
      return 0;
    }
    return Run(3, std::vector<char*>{argv[0], argv[2], const_cast<char*>("--help")}.data());
  }
  if (args[0] == "--version") {
    std::puts("ulf " ULFD_VERSION);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name != args[0]) continue;
    const absl::Status status = WithinMemory([&] { return command.run(Args(args).subspan(1)); });
    if (status.ok() || IsHelpPrinted(status)) return 0;
    std::fflush(stdout);
    PrintError(absl::StrCat("ulf ", args[0]), status);
    if (!IsUsageError(status)) return 1;
    std::fprintf(stderr, "`ulf %s --help` explains the command\n", args[0].c_str());
    return 2;
  }
  std::vector<absl::string_view> known;
  for (const Command& command : kCommands) known.push_back(command.name);
  std::fprintf(stderr, "ulf: unknown command \"%s\"%s\n`ulf help` lists them\n", args[0].c_str(),
               DidYouMean(args[0], known).c_str());
  return 2;
}

int Main(int argc, char** argv) {
  const int code = Run(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fputs("ulf: cannot write standard output\n", stderr);
  return code == 0 ? 1 : code;
}

}  // namespace
}  // namespace ulfd::tools

// Stands before the C library's.  Where the system refuses a thread gRPC waits for it for ever, and
// std::thread throws on whatever thread that is: neither leaves a command anything to report.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  const int error = create(thread, attributes, run, argument);
  if (error == 0) return 0;
  std::fprintf(stderr, "ulf: the system refuses a thread: %s\n", std::strerror(error));
  std::_Exit(1);
}

int main(int argc, char** argv) {
  // A file at its limit is an error of one write.
  std::signal(SIGXFSZ, SIG_IGN);
  return ulfd::tools::Main(argc, argv);
}
