// Request bodies of four protocols to the conversation form, as leniently as a log deserves: what a server would refuse was sent all
// the same, and what counts here is the prompt that came of it. The strict readers of recipe/ share the form and the order of its
// parts, not these rules: unknown roles are users, unknown blocks their JSON text, a missing result is nobody's fault.
#pragma once

#include <optional>

#include "trace/json_value.h"
#include "trace/log_record.h"

namespace deepinfer::trace {

// Which protocol an object is a request of; nullopt: none.
std::optional<LogFormat> body_format(const MaybeJson& body);

// prompt, model, session and tenant of a body of that protocol. False: there is no prompt in it.
bool read_body(const Json& body, LogFormat format, LogRecord& out);

// Parts that wrappers carry apart from a body.
void append_chat_messages(const Json& messages, recipe::Conversation& out);
// role: of a message that does not name its own.
void append_chat_message(const Json& message, std::string_view role, recipe::Conversation& out);
void append_response_items(const Json& items, recipe::Conversation& out);
// open: the last message is an answer that goes on; false before the first item.
void append_response_item(const Json& item, recipe::Conversation& out, bool& open);
void append_anthropic_message(std::string_view role, const MaybeJson& content, recipe::Conversation& out);
void append_tools(const Json& tools, recipe::Conversation& out);
void append_tool(std::string_view name, std::string_view description, const MaybeJson& parameters, recipe::Conversation& out,
                 const boost::json::storage_ptr& memory = {});
void append_assistant_blocks(const MaybeJson& content, recipe::Message& out);

// Token counts of any protocol's usage object, and of the flat fields that gateways write.
void read_usage(const MaybeJson& usage, LoggedUsage& out);

}  // namespace deepinfer::trace
