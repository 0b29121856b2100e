// The figures of an audit as one JSON object: what --json writes, what the terminal summary and the HTML page are made from, and what
// --merge reads back. Fields: docs/audit.md. Same input, same bytes; the time of the run is not in it.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trace/audit.h"
#include "trace/price_table.h"
#include "trace/reuse.h"

namespace deepinfer::trace {

struct Retention {
  std::string name;
  int64_t us;
};
const std::vector<Retention>& standard_retentions();  // 5m 1h 12h 24h 72h 7d

// Hardware of one's own: what a token costs when the machine is paid by the hour.
struct OwnHardware {
  double accelerator_hour = 0;  // US dollars
  double prefill_rate = 0, decode_rate = 0;  // tokens a second of one accelerator
};

struct ReportOptions {
  int32_t block_tokens = 128;             // of the cache that the main figures are about
  std::vector<int32_t> other_block_tokens = {64, 256};
  std::vector<uint64_t> capacities;       // in tokens; empty: a row of powers of four up to what the log needs
  int num_workers = 8;
  std::string tokenizer_name;
  const PriceTable* prices = nullptr;
  std::string price;                      // entry for models that the table does not know; empty: none
  std::optional<OwnHardware> hardware;
  bool shard = false;                     // add what --merge needs
  bool redact = false;                    // messages that name files as digests; texts of logs were redacted by the audit (AuditOptions)
};

// Without a request: what --merge needs, if that is asked for. Errors: kNotFound (no request), kInvalidArgument (block sizes that the
// trace's do not divide; a price entry that does not exist).
Result<boost::json::object> make_report(const Audit& audit, const ReportOptions& options);

// Adds a report that was written with `shard` to an audit. Errors: kInvalidArgument, kCorruption.
Result<> add_shard(const boost::json::object& report, Audit& audit);

// One screen for a terminal.
std::string summary_text(const boost::json::object& report);

}  // namespace deepinfer::trace
