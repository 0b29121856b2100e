#include "trace/html_report.h"

#include <boost/json/serialize.hpp>
#include <string_view>

#include "generated/audit_page.h"

namespace deepinfer::trace {
namespace {

void replace_once(std::string_view mark, std::string_view with, std::string& page) {
  const size_t at = page.find(mark);
  if (at != std::string::npos) page.replace(at, mark.size(), with);
}

}  // namespace

std::string html_report(const boost::json::object& report) {
  // Inside a script element nothing but "</script" and "<!--" means anything to HTML: no "<" is left in the JSON.
  std::string json;
  for (const char c : boost::json::serialize(report)) {
    if (c == '<') json += "\\u003c";
    else json += c;
  }
  std::string page(kAuditPage);
  replace_once("@UPLOT_CSS@", kUplotCss, page);
  replace_once("@UPLOT_JS@", kUplotJs, page);
  replace_once("@REPORT_JSON@", json, page);
  return page;
}

}  // namespace deepinfer::trace
