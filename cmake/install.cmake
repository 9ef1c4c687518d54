# The installed package: find_package(everleaf) gives everleaf::everleaf, and everleaf::pmwcas.
# Components for packages: `development` (this file), `programs` (everleaf), `tools` (crash checker and bench, which
# `everleaf crash` and `everleaf bench` run; EVERLEAF_CRASH, EVERLEAF_BENCH), `python`.
include(CMakePackageConfigHelpers)

set(EVERLEAF_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/everleaf)

install(TARGETS everleaf everleaf-pmwcas EXPORT everleaf-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/everleaf ${EVERLEAF_MADE_INCLUDE}/everleaf
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
# What words/word_pool.hpp includes.
foreach(header words/word_pool.hpp pmwcas/pmwcas.hpp pmwcas/layout.hpp alloc/grace.hpp alloc/ground.hpp alloc/heap.hpp
    alloc/redo_log.hpp base/limits.hpp base/seam.hpp base/thread_slot.hpp pmem/file.hpp pmem/format.hpp
    pmem/growth_turns.hpp pmem/header.hpp pmem/medium.hpp pmem/pool_file.hpp pmem/site.hpp pmem/unborn.hpp pmem/write_back.hpp)
  get_filename_component(directory ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/src/${header}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/everleaf-pmwcas/${directory} COMPONENT development)
endforeach()
install(EXPORT everleaf-targets NAMESPACE everleaf::
  DESTINATION ${EVERLEAF_PACKAGE_DIR} COMPONENT development)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/everleaf-config.cmake.in
  ${PROJECT_BINARY_DIR}/everleaf-config.cmake INSTALL_DESTINATION ${EVERLEAF_PACKAGE_DIR})
# Before 1.0 a minor release may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/everleaf-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/everleaf-config.cmake ${PROJECT_BINARY_DIR}/everleaf-config-version.cmake
  DESTINATION ${EVERLEAF_PACKAGE_DIR} COMPONENT development)
