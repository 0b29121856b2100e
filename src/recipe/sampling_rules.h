// How DeepSeek's dialects are sampled: while a model thinks, temperature and top_p are what it was trained with, whatever was asked; and
// how long an answer may be that nobody limited.
//
//                thinking                                              not thinking
// temperature    1                                                     as asked
// top_p          v4.1: as asked, 0.95 at least;                        v4.1: 1;
//                v4: 0.95 with active tools, else 1                    v4: as asked
// penalties      none                                                  as asked
// max_tokens     65536; effort max: 131072                             8192
#pragma once

#include "recipe/conversation.h"
#include "recipe/generation_options.h"

namespace deepinfer::recipe {

// Models with a chat template of their own are left alone.
void apply_sampling_rules(const OptionsContext& context, const Conversation& conversation, GenerationOptions& options);

}  // namespace deepinfer::recipe
