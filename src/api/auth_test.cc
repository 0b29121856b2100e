#include "api/auth.h"

#include <gtest/gtest.h>


namespace deepinfer::api {
namespace {

TEST(ApiKeys, ReadsKeysAndTenants) {
  const Result<ApiKeys> keys = ApiKeys::parse("# ours\nplain\n\n acme : k1 \r\nacme:k2\nother:k3", "keys");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_TRUE(keys->required());
  EXPECT_EQ(keys->tenant_of("plain"), "");
  ASSERT_TRUE(keys->tenant_of("k1"));
  EXPECT_EQ(keys->tenant_of("k1"), keys->tenant_of("k2"));
  EXPECT_NE(keys->tenant_of("k1"), keys->tenant_of("k3"));
  EXPECT_EQ(keys->tenant_of("k1")->find("acme"), std::string::npos);
  EXPECT_FALSE(keys->tenant_of("acme:k1"));
  EXPECT_FALSE(keys->tenant_of(""));
  EXPECT_FALSE(keys->tenant_of("k"));
}

TEST(ApiKeys, TheDefaultTenantHasAName) {
  const ApiKeys keys = ApiKeys::parse("plain\ndefault:named\nacme:k1", "keys").value();
  EXPECT_EQ(keys.tenant_of("named"), "");
  EXPECT_EQ(tenant_id("default"), "");
  for (const char* name : {"default", "acme"}) EXPECT_TRUE(keys.has_tenant(tenant_id(name))) << name;
  EXPECT_FALSE(keys.has_tenant(tenant_id("other")));
  EXPECT_FALSE(ApiKeys::parse("acme:k1", "keys")->has_tenant(tenant_id("default")));
  EXPECT_TRUE(ApiKeys().has_tenant(tenant_id("default")));
  EXPECT_FALSE(ApiKeys().has_tenant(tenant_id("acme")));
  EXPECT_EQ(keys.tenant_name(tenant_id("acme")), "acme");
  EXPECT_EQ(keys.tenant_name(tenant_id("default")), "default");
  EXPECT_EQ(ApiKeys().tenant_name(""), "default");
}

TEST(ApiKeys, RefusesFilesThatAreNone) {
  EXPECT_EQ(ApiKeys::parse("", "f").error().message, "f holds no API key");
  EXPECT_EQ(ApiKeys::parse("a\nb\na\n", "f").error().message, "f line 3: this key appears twice");
  EXPECT_FALSE(ApiKeys::parse("two words", "f"));
  EXPECT_FALSE(ApiKeys::parse(":key", "f"));
  EXPECT_FALSE(ApiKeys::parse("tenant:", "f"));
  const Result<ApiKeys> absent = ApiKeys::load("/nonexistent/keys");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kIo);
}

TEST(ApiKeys, AcceptsEitherHeader) {
  EXPECT_EQ(presented_key("Bearer abc", ""), "abc");
  EXPECT_EQ(presented_key("bearer  abc ", "x"), "abc");
  EXPECT_EQ(presented_key("Basic abc", "x"), "x");
  EXPECT_EQ(presented_key("", " x "), "x");
  EXPECT_EQ(presented_key("", ""), "");
}

}  // namespace
}  // namespace deepinfer::api
