// The subcommands: each adds its flags to the tree and gives back what runs it. One file a subcommand; the order here is that of
// --help. An action prints its result to stdout, its errors to stderr, and returns the exit code: 0 done, 1 the world failed
// (a file, a port, a model), 2 wrong usage.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace deepinfer::apps {

using Action = std::function<int()>;

struct Command {
  CLI::App* app;
  Action run;
};

constexpr int kExitDone = 0, kExitFailed = 1, kExitUsage = 2;

// "deepinfer: <message>" on stderr. kInvalidArgument is wrong usage, everything else the world's fault.
int report(const Error& error);

Command add_serve(CLI::App& root);
Command add_run(CLI::App& root);
Command add_bench(CLI::App& root);
Command add_bench_cache(CLI::App& bench);  // below `deepinfer bench`
Command add_model_info(CLI::App& model);  // below `deepinfer model`
Command add_model_synth(CLI::App& model);
Command add_cache_stat(CLI::App& cache);  // below `deepinfer cache`
Command add_cache_verify(CLI::App& cache);
Command add_cache_purge(CLI::App& cache);
Command add_cache_warm(CLI::App& cache);
Command add_debug_dump(CLI::App& debug);  // below `deepinfer debug`
Command add_tokenize(CLI::App& root);
Command add_render(CLI::App& root);
Command add_audit(CLI::App& root);
Command add_completion(CLI::App& root);
Command add_man(CLI::App& root);

}  // namespace deepinfer::apps
