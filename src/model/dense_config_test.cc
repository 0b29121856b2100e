#include "model/dense_config.h"

#include <gtest/gtest.h>
#include <cmath>
#include <filesystem>

#include "model/dense_weights.h"
#include "model/gguf_vocabulary.h"
#include "model/model_file.h"

namespace deepinfer::model {
namespace {

// A config.json: the smallest complete one, `extra` behind it. A key given twice counts where it comes first, so `extra` comes
// first.
std::string config_json(const std::string& type, const std::string& extra = "") {
  return "{" + extra + (extra.empty() ? "" : ",") + R"("model_type":")" + type +
         R"(","hidden_size":64,"intermediate_size":128,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,)"
         R"("vocab_size":512,"max_position_embeddings":4096,"rms_norm_eps":1e-05,"hidden_act":"silu"})";
}
DenseConfig good(const std::string& type, const std::string& extra = "", const std::string& generation = "") {
  auto config = dense_config_from_json(config_json(type, extra), generation, "f/config.json");
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : DenseConfig();
}
std::string bad(const std::string& type, const std::string& extra, const std::string& generation = "") {
  const auto config = dense_config_from_json(config_json(type, extra), generation, "f/config.json");
  return config ? "accepted" : config.error().message;
}

TEST(DenseConfigJson, ReadsTheShape) {
  const DenseConfig c = good("llama");
  EXPECT_EQ(c.architecture, DenseArchitecture::kLlama);
  EXPECT_EQ(c.naming, TensorNaming::kHuggingFace);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.q_size(), 64);
  EXPECT_EQ(c.kv_size(), 32);
  EXPECT_EQ(c.max_context, 4096);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_FALSE(c.rope.interleaved);
  EXPECT_FALSE(c.tied_head || c.qkv_bias || c.output_bias || c.qk_norm);
  EXPECT_EQ(c.layer_window, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_FALSE(c.bos_id);
  EXPECT_TRUE(c.eos_ids.empty());
}

TEST(DenseConfigJson, ArchitecturesHaveTheirTraits) {
  EXPECT_TRUE(good("qwen2").qkv_bias);
  EXPECT_FALSE(good("qwen2", R"("attention_bias":true)").output_bias);
  EXPECT_TRUE(good("llama", R"("attention_bias":true)").output_bias);
  EXPECT_TRUE(good("qwen3").qk_norm);
  EXPECT_EQ(good("qwen3").head_dim, 128);  // its own default
  EXPECT_EQ(good("qwen3", R"("head_dim":32)").q_size(), 128);
  EXPECT_TRUE(good("llama", R"("tie_word_embeddings":true)").tied_head);
}

TEST(DenseConfigJson, ReadsLlama3ScalingInBothForms) {
  const std::string fields =
      R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":512,"rope_type":"llama3")";
  const DenseConfig classic = good("llama", R"("rope_theta":500000,"rope_scaling":{)" + fields + "}");
  const DenseConfig newer = good("llama", R"("rope_parameters":{"rope_theta":500000,)" + fields + "}");
  for (const RopeConfig& rope : {classic.rope, newer.rope}) {
    EXPECT_EQ(rope.scaling, RopeConfig::Scaling::kLlama3);
    EXPECT_EQ(rope.theta, 500000);
    EXPECT_EQ(rope.factor, 8);
    EXPECT_EQ(rope.low_freq_factor, 1);
    EXPECT_EQ(rope.high_freq_factor, 4);
    EXPECT_EQ(rope.original_context, 512);
  }
  EXPECT_EQ(classic.max_context, 4096);
  EXPECT_EQ(bad("llama", R"("rope_scaling":{"rope_type":"llama3","factor":8,"high_freq_factor":4})"),
            "f/config.json: key rope_scaling.low_freq_factor is absent");
}

TEST(DenseConfigJson, ReadsYarn) {
  const DenseConfig c = good("qwen2", R"("rope_scaling":{"factor":4.0,"original_max_position_embeddings":4096,"type":"yarn"})");
  EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_DOUBLE_EQ(c.rope.attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(c.rope.beta_fast, 32);
  EXPECT_EQ(c.rope.beta_slow, 1);
  EXPECT_EQ(c.max_context, 16384);  // the file gives the original context as the model's own
  const DenseConfig given = good(
      "qwen2",
      R"("rope_scaling":{"factor":4,"attention_factor":1.5,"beta_fast":16,"beta_slow":2,"truncate":false,"rope_type":"yarn"})");
  EXPECT_EQ(given.rope.attention_factor, 1.5);
  EXPECT_EQ(given.rope.beta_fast, 16);
  EXPECT_EQ(given.rope.original_context, 4096);
  EXPECT_FALSE(given.rope.truncate);
  EXPECT_EQ(bad("qwen2", R"("rope_scaling":{"factor":4,"beta_fast":1,"type":"yarn"})"),
            "f/config.json: key rope_scaling.beta_fast is not above beta_slow");
}

TEST(DenseConfigJson, ReadsLinearAndNtk) {
  const DenseConfig linear = good("llama", R"("rope_scaling":{"factor":2.0,"type":"linear"})");
  EXPECT_EQ(linear.rope.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(linear.max_context, 8192);
  const DenseConfig ntk = good("llama", R"("rope_scaling":{"factor":2.0,"type":"dynamic"})");
  EXPECT_EQ(ntk.rope.scaling, RopeConfig::Scaling::kNtk);
  EXPECT_DOUBLE_EQ(ntk.rope.theta, 10000 * std::pow(3.0, 16.0 / 14));
  EXPECT_EQ(ntk.max_context, 8192);
}

TEST(DenseConfigJson, WindowsWhereTheConfigHasThem) {
  EXPECT_EQ(good("qwen2", R"("sliding_window":128,"use_sliding_window":false)").layer_window, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(good("qwen2", R"("sliding_window":128,"use_sliding_window":true,"max_window_layers":1)").layer_window,
            (std::vector<int32_t>{0, 128, 128}));
  EXPECT_EQ(
      good(
          "qwen3",
          R"("sliding_window":128,"use_sliding_window":true,"layer_types":["sliding_attention","full_attention","sliding_attention"])")
          .layer_window,
      (std::vector<int32_t>{128, 0, 128}));
  EXPECT_EQ(bad("qwen3", R"("sliding_window":128,"use_sliding_window":true,"layer_types":["full_attention"])"),
            "f/config.json: key layer_types is not a list of one type a layer");
}

TEST(DenseConfigJson, TokensComeFromBothFiles) {
  const DenseConfig c = good("llama", R"("bos_token_id":1,"eos_token_id":2)", R"({"eos_token_id":[3,2,4]})");
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.eos_ids, (std::vector<TokenId>{3, 2, 4}));
  EXPECT_EQ(bad("llama", R"("eos_token_id":512)"), "f/config.json: key eos_token_id: token id 512 in a vocabulary of 512");
  EXPECT_EQ(bad("llama", "\"bos_token_id\":null", R"({"eos_token_id":[-1]})"),
            "f/generation_config.json: key eos_token_id: token id -1 in a vocabulary of 512");
  EXPECT_EQ(bad("llama", "\"bos_token_id\":null", "{").substr(0, 43), "f/generation_config.json: not a JSON object");
}

TEST(DenseConfigJson, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(bad("llama", R"("num_attention_heads":3)"),
            "f/config.json: key num_key_value_heads is 2: 3 heads cannot share that many evenly");
  EXPECT_EQ(bad("llama", R"("num_attention_heads":6)"),
            "f/config.json: key num_attention_heads is 6: a hidden size of 64 cannot be divided by it");
  EXPECT_EQ(bad("llama", R"("num_key_value_heads":0)"), "f/config.json: key num_key_value_heads: 0 is not in 1 to 4096");
  EXPECT_EQ(bad("llama", R"("head_dim":15)"), "f/config.json: key head_dim is 15: heads must be of even size");
  EXPECT_EQ(bad("llama", R"("hidden_size":"64")"), "f/config.json: key hidden_size is not an integer");
  EXPECT_EQ(bad("llama", R"("hidden_size":null)"), "f/config.json: key hidden_size is absent");
  EXPECT_EQ(bad("llama", R"("num_hidden_layers":1000000)"), "f/config.json: key num_hidden_layers: 1000000 is not in 1 to 1024");
  EXPECT_EQ(bad("llama", R"("rms_norm_eps":0)"), "f/config.json: key rms_norm_eps: 0 is not in 1e-12 to 0.1");
  EXPECT_EQ(bad("llama", R"("hidden_act":"gelu")"), "f/config.json: key hidden_act: \"gelu\" (silu is supported)");
  EXPECT_EQ(bad("llama", R"("quantization_config":{})"),
            "f/config.json: key quantization_config: weights quantised this way are not supported");
  EXPECT_EQ(bad("gemma3", "\"mlp_bias\":false"),
            "f/config.json: key model_type: \"gemma3\" (llama, qwen2 and qwen3 are supported)");
  EXPECT_EQ(bad("llama", R"("rope_scaling":{"rope_type":"longrope","factor":2})"),
            "f/config.json: key rope_scaling.rope_type: \"longrope\" (default, linear, dynamic, yarn and llama3 are supported)");
}

// The same model said in four files: GGUF, and config.json in the classic and in the newer form.
TEST(DenseConfigFiles, AllSpellingsOfTheTinyModelsAgree) {
  const std::string root = std::string(DI_SOURCE_DIR) + "/../shared/golden/dense/";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not there";
  for (const std::string name : {"tiny-llama", "tiny-qwen2", "tiny-qwen3"}) {
    std::vector<DenseConfig> configs;
    for (const std::string& path : {name + "-F16.gguf", std::string("f32"), std::string("bf16")}) {
      const auto file = open_model_file(root + name + "/" + path);
      ASSERT_TRUE(file) << file.error().message;
      const auto config = read_dense_config(*file);
      ASSERT_TRUE(config) << config.error().message;
      const auto weights = bind_dense(file->checkpoint(), *config);
      ASSERT_TRUE(weights) << weights.error().message;
      configs.push_back(*config);
    }
    for (const DenseConfig& c : configs) {
      EXPECT_EQ(dense_architecture_name(c.architecture), name.substr(5));
      EXPECT_EQ(c.num_hidden_layers, 3);
      EXPECT_EQ(c.hidden_size, configs[0].hidden_size);
      EXPECT_EQ(c.head_dim, configs[0].head_dim);
      EXPECT_EQ(c.num_attention_heads, configs[0].num_attention_heads);
      EXPECT_EQ(c.num_key_value_heads, configs[0].num_key_value_heads);
      EXPECT_EQ(c.intermediate_size, configs[0].intermediate_size);
      EXPECT_EQ(c.vocab_size, 512);
      EXPECT_EQ(c.max_context, 4096);
      EXPECT_EQ(c.rms_norm_eps, 1e-5f);
      EXPECT_EQ(c.rope.theta, configs[0].rope.theta);
      EXPECT_EQ(c.tied_head, name != "tiny-llama");
      EXPECT_EQ(c.qkv_bias, name == "tiny-qwen2");
      EXPECT_EQ(c.qk_norm, name == "tiny-qwen3");
      EXPECT_EQ(c.bos_id, 509);
      EXPECT_EQ(c.eos_ids, std::vector<TokenId>{511});
      EXPECT_EQ(c.rope.interleaved, name == "tiny-llama" && c.naming == TensorNaming::kGguf);
      if (name == "tiny-qwen2") {
        EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::kYarn);
        EXPECT_EQ(c.rope.original_context, 512);
        EXPECT_DOUBLE_EQ(c.rope.attention_factor, 0.1 * std::log(8.0) + 1);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::model
