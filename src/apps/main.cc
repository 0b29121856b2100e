#include "apps/cli.h"

int main(int argc, char** argv) {
  return deepinfer::apps::CommandLine().run(argc, argv, deepinfer::apps::process_environment());
}
