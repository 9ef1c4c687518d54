# The installed package: find_package(everleaf) gives everleaf::everleaf.
include(CMakePackageConfigHelpers)

set(EVERLEAF_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/everleaf)

install(TARGETS everleaf EXPORT everleaf-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/everleaf
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
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
