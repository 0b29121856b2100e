// CHECK: our own mistakes end the process, always, with the place and the condition. DCHECK: the same in debug builds only,
// for inner loops. One condition each, so that the message says which one failed.
#pragma once

namespace deepinfer {
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      ::deepinfer::check_failed(__FILE__, __LINE__, #condition);                    \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition) \
  do {                    \
    if (false) (void)(condition); \
  } while (false)
#else
#define DCHECK(condition) CHECK(condition)
#endif
