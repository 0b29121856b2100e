// A report as one HTML file that needs nothing else: the page of web/audit with its chart library and the JSON in it.
#pragma once

#include <boost/json/object.hpp>
#include <string>

namespace deepinfer::trace {

std::string html_report(const boost::json::object& report);

}  // namespace deepinfer::trace
