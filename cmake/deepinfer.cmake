# One library a folder of src/, and one test program from the *_test.cc files beside the code.
#
#   deepinfer_folder(kernels LIBS di_base LABELS engine)
#
# compiles every src/kernels/**/*.cc but the tests into di_kernels, and the tests into kernels_test. A source whose name ends
# in an instruction set (foo_avx512.cc) is compiled for it; everything else for the x86-64-v2 baseline.
include(GoogleTest)

set(DI_ISA_avx2 "-mavx2;-mfma;-mf16c")
set(DI_ISA_avxvnni "${DI_ISA_avx2};-mavxvnni")
set(DI_ISA_avx512f "-Wno-maybe-uninitialized;${DI_ISA_avx2};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl")
# gcc 12 takes the undefined operand inside its own AVX-512 intrinsics for an uninitialised variable.
set(DI_ISA_avx512 "-Wno-maybe-uninitialized;${DI_ISA_avx2};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512bf16;-mavx512vbmi")
set(DI_ISA_amx "${DI_ISA_avx512};-mamx-tile;-mamx-int8;-mamx-bf16")
# Kernels unroll into thousands of accesses a function; with each of them checked in place the compiler takes minutes a file. They are
# checked by calls instead, without red zones around locals and without the checks of pointers themselves: what is read and written counts.
set(DI_ISA_SANITIZE)
if(DI_SANITIZE MATCHES "address")
  set(DI_ISA_SANITIZE --param=asan-stack=0 --param=asan-instrumentation-with-call-threshold=0)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(DI_ISA_SANITIZE -mllvm=-asan-stack=0 -mllvm=-asan-instrumentation-with-call-threshold=0)
  endif()
endif()
if(DI_SANITIZE MATCHES "undefined")
  list(APPEND DI_ISA_SANITIZE -fno-sanitize=null,alignment,object-size,pointer-overflow,vptr)
endif()

function(deepinfer_isa_flags)
  foreach(source IN LISTS ARGN)
    foreach(isa IN ITEMS avx2 avxvnni avx512f avx512 amx)
      if(source MATCHES "_${isa}\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>;${DI_ISA_${isa}};${DI_ISA_SANITIZE}")
      endif()
    endforeach()
  endforeach()
endfunction()

# deepinfer_test(NAME sources… LIBS … LABELS …): a GoogleTest program, each of its tests a ctest test.
# DI_SOURCE_DIR and DI_SHARED_DIR tell tests where golden data lie; a test that needs DI_SHARED_DIR skips without it.
function(deepinfer_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE DI_SOURCE_DIR="${CMAKE_SOURCE_DIR}" DI_BINARY_DIR="${CMAKE_BINARY_DIR}")
  # Optimising a test takes longer than it runs: -O2 half as long again as -O1, and a sanitizer's additions longer still.
  if(DI_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  else()
    target_compile_options(${name} PRIVATE -O1)
  endif()
  # Workers spin inside a step: two such programs on the same cores would wait for each other's time slices.
  set(processors 1)
  if("engine" IN_LIST ARG_LABELS OR "e2e" IN_LIST ARG_LABELS)
    set(processors 2)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST)
  # Not as PROPERTIES of the discovery: that takes a list of labels apart, and all but the first are lost with what follows them.
  set(properties ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
  file(WRITE ${properties} "foreach(test IN LISTS ${name}_TESTS)
  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${ARG_LABELS}\" PROCESSORS ${processors})
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${properties})
endfunction()

# The test programs of all folders; their tests have the label unit.
add_custom_target(unit_tests)

function(deepinfer_folder folder)
  cmake_parse_arguments(ARG "" "" "LIBS;LABELS" ${ARGN})
  set(root ${CMAKE_SOURCE_DIR}/src/${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${root}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  string(REPLACE "/" "_" target di_${folder})
  if(sources)
    add_library(${target} STATIC ${sources})
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PUBLIC ${ARG_LIBS})
    deepinfer_isa_flags(${sources})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} INTERFACE ${ARG_LIBS})
  endif()
  if(tests)
    deepinfer_test(${folder}_test SOURCES ${tests} LIBS ${target} LABELS ${ARG_LABELS} unit)
    add_dependencies(unit_tests ${folder}_test)
  endif()
endfunction()
