# Run at build time (cmake -P): writes OUTPUT, a header with `git describe` of SOURCE_DIR, or FALLBACK outside a checkout.
# The file is touched only when the text changes, so an unchanged commit recompiles nothing.
execute_process(
  COMMAND git -c safe.directory=* describe --tags --always --dirty --match "v[0-9]*"
  WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE description OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR description STREQUAL "")
  set(text "${FALLBACK}")
elseif(description MATCHES "^v[0-9]")
  string(SUBSTRING "${description}" 1 -1 text)
else()
  set(text "${FALLBACK}+${description}")
endif()
set(content "// Written by cmake/git_description.cmake.\n#pragma once\n#define DI_GIT_DESCRIPTION \"${text}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()
