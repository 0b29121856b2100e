// LIBS: di_trace
// Lines of logs in every format, session files, times and stored traces, from any bytes at all.
#include "trace/log_parser.h"
#include "trace/request_trace.h"
#include "trace/session_file.h"

using namespace deepinfer::trace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  text.append(simdjson::SIMDJSON_PADDING, ' ');
  LogParser parser{ParserOptions{}};
  LogParser forced{{.format = static_cast<LogFormat>(size % kNumLogFormats), .time_field = "a.b", .tenant_field = "c"}};
  std::vector<std::unique_ptr<SessionFile>> sessions;
  for (const LogFormat format : {LogFormat::kClaudeCode, LogFormat::kCodex}) sessions.push_back(SessionFile::create(format, ParserOptions{}));
  for (size_t at = 0; at < size;) {
    const size_t end = std::min(text.find('\n', at), size);
    const std::string_view line(text.data() + at, end - at);
    std::vector<LogRecord> records;
    (void)parser.parse(line, records);
    (void)forced.parse(line, records);
    (void)session_format(line);
    for (const auto& session : sessions) (void)session->add_line(line);
    (void)parse_time_us(line);
    at = end + 1;
  }
  for (const auto& session : sessions) session->finish([](LogRecord) {});
  (void)RequestTrace::decode(std::string_view(text).substr(0, size), 1 << 16).has_value();
  return 0;
}
