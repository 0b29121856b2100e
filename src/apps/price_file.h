// Price tables as TOML: the product's own (data/prices.toml, built in) and a user's, whose entries are looked at first.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/price_table.h"

namespace deepinfer::apps {

// name: for messages. Errors: kInvalidArgument (not TOML; a key missing, unknown or of the wrong type, with its place).
Result<trace::PriceTable> parse_prices(std::string_view toml, const std::string& name);

// file: a user's table, or empty.
Result<trace::PriceTable> load_prices(const std::string& file);

}  // namespace deepinfer::apps
