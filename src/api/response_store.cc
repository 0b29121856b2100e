#include "api/response_store.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include "base/thread_annotations.h"

namespace deepinfer::api {
namespace {

constexpr int kApplicationId = 0x64697270;  // "dirp"
constexpr int kVersion = 1;
constexpr int kBusyMs = 2000;               // another process may look into the file
constexpr int64_t kRemovedPerPut = 64;      // bounds what one put may have to clear away

constexpr const char* kSchema =
    "CREATE TABLE responses (id TEXT NOT NULL, tenant TEXT NOT NULL, created INTEGER NOT NULL, previous_id TEXT NOT NULL,"
    " response TEXT NOT NULL, input TEXT NOT NULL, PRIMARY KEY (id, tenant)) WITHOUT ROWID;"
    "CREATE INDEX responses_by_age ON responses (created);";

Error failed(sqlite3* db, std::string_view what) {
  return {Code::kIo, fmt::format("the response store cannot {}: {}", what, db != nullptr ? sqlite3_errmsg(db) : "out of memory")};
}

// A prepared statement, for one run. Steps and columns as the library has them.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) { ok_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr) == SQLITE_OK; }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::string_view text) {
    ok_ = ok_ && sqlite3_bind_text64(statement_, ++next_, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8) == SQLITE_OK;
    return *this;
  }
  Statement& bind(int64_t number) {
    ok_ = ok_ && sqlite3_bind_int64(statement_, ++next_, number) == SQLITE_OK;
    return *this;
  }
  // SQLITE_ROW, SQLITE_DONE, or an error.
  int step() { return ok_ ? sqlite3_step(statement_) : SQLITE_ERROR; }
  std::string text(int column) {
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return data != nullptr ? std::string(data, static_cast<size_t>(sqlite3_column_bytes(statement_, column))) : std::string();
  }
  int64_t number(int column) { return sqlite3_column_int64(statement_, column); }
  int num_changed() const { return sqlite3_changes(db_); }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int next_ = 0;
  bool ok_ = false;
};

int64_t pragma(sqlite3* db, const char* sql) {
  Statement statement(db, sql);
  return statement.step() == SQLITE_ROW ? statement.number(0) : -1;
}

bool run(sqlite3* db, const std::string& sql) { return sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK; }

}  // namespace

struct ResponseStore::Impl {
  explicit Impl(ResponseStoreOptions options) : options(std::move(options)) {}
  ~Impl() { sqlite3_close(db); }
  Result<> prepare_file() REQUIRES(mu);
  int64_t oldest(int64_t now_unix_s) const { return now_unix_s - options.retention.count(); }

  const ResponseStoreOptions options;
  Mutex mu;
  sqlite3* db GUARDED_BY(mu) = nullptr;
};

Result<> ResponseStore::Impl::prepare_file() {
  sqlite3_busy_timeout(db, kBusyMs);
  const int64_t application = pragma(db, "PRAGMA application_id");
  const int64_t version = pragma(db, "PRAGMA user_version");
  const int64_t tables = pragma(db, "SELECT count(*) FROM sqlite_master");
  if (application < 0 || version < 0 || tables < 0) return Error{Code::kCorruption, fmt::format("{} is not a response store: {}", options.path, sqlite3_errmsg(db))};
  if (application == kApplicationId && version != kVersion) {
    return Error{Code::kCorruption, fmt::format("{} is a response store of version {}; this program knows version {}", options.path, version, kVersion)};
  }
  if (application != kApplicationId && (application != 0 || tables != 0)) {
    return Error{Code::kCorruption, fmt::format("{} holds something else than a response store", options.path)};
  }
  // auto_vacuum counts only before anything is written. Write-ahead: a reader never waits for a writer, and a commit is one fsync.
  if (!run(db, "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL")) return failed(db, "be set up");
  if (application == kApplicationId) return {};
  const std::string sql = fmt::format("BEGIN; {} PRAGMA application_id={}; PRAGMA user_version={}; COMMIT;", kSchema, kApplicationId, kVersion);
  if (!run(db, sql)) return failed(db, "be made");
  return {};
}

ResponseStore::ResponseStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResponseStore::~ResponseStore() = default;

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(const ResponseStoreOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  MutexLock lock(impl->mu);
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(options.path.c_str(), &impl->db, flags, nullptr) != SQLITE_OK) {
    return Error{Code::kIo, fmt::format("cannot open the response store {}: {}", options.path, impl->db != nullptr ? sqlite3_errmsg(impl->db) : "out of memory")};
  }
  DI_TRY(impl->prepare_file());
  return std::unique_ptr<ResponseStore>(new ResponseStore(std::move(impl)));
}

Result<> ResponseStore::put(const StoredResponse& response, int64_t now_unix_s) {
  Impl& impl = *impl_;
  MutexLock lock(impl.mu);
  {
    Statement insert(impl.db, "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?)");
    insert.bind(response.id).bind(response.tenant).bind(response.created_unix_s).bind(response.previous_id).bind(response.response).bind(response.input);
    if (insert.step() != SQLITE_DONE) return failed(impl.db, "keep a response");
  }
  Statement expire(impl.db,
                   "DELETE FROM responses WHERE (id, tenant) IN (SELECT id, tenant FROM responses WHERE created < ?1"
                   " OR created < (SELECT created FROM responses ORDER BY created DESC LIMIT 1 OFFSET ?2) ORDER BY created LIMIT ?3)");
  expire.bind(impl.oldest(now_unix_s)).bind(impl.options.max_responses - 1).bind(kRemovedPerPut);
  if (expire.step() != SQLITE_DONE) return failed(impl.db, "remove what is too old");
  if (expire.num_changed() > 0 && !run(impl.db, "PRAGMA incremental_vacuum(256)")) return failed(impl.db, "give space back");
  return {};
}

Result<StoredResponse> ResponseStore::get(std::string_view id, std::string_view tenant, int64_t now_unix_s) {
  Impl& impl = *impl_;
  MutexLock lock(impl.mu);
  Statement select(impl.db, "SELECT created, previous_id, response, input FROM responses WHERE id = ? AND tenant = ? AND created >= ?");
  const int got = select.bind(id).bind(tenant).bind(impl.oldest(now_unix_s)).step();
  if (got == SQLITE_DONE) return Error{Code::kNotFound, "there is no such response"};
  if (got != SQLITE_ROW) return failed(impl.db, "be read");
  return StoredResponse{.id = std::string(id), .tenant = std::string(tenant), .created_unix_s = select.number(0), .previous_id = select.text(1),
                        .response = select.text(2), .input = select.text(3)};
}

Result<> ResponseStore::remove(std::string_view id, std::string_view tenant, int64_t now_unix_s) {
  Impl& impl = *impl_;
  MutexLock lock(impl.mu);
  Statement remove(impl.db, "DELETE FROM responses WHERE id = ? AND tenant = ? AND created >= ?");
  if (remove.bind(id).bind(tenant).bind(impl.oldest(now_unix_s)).step() != SQLITE_DONE) return failed(impl.db, "remove a response");
  if (remove.num_changed() == 0) return Error{Code::kNotFound, "there is no such response"};
  return {};
}

}  // namespace deepinfer::api
