# cmake --install: programs, manual pages, protos, plug-in headers, the C++ client and their CMake package.
# cpack: the same as Debian packages (ulfd: the daemon and its command line; ulfd-convert; ulfd-dev), see check-package.
include(GNUInstallDirs)
set(package_dir ${CMAKE_CURRENT_LIST_DIR})

install(TARGETS ulfd ulf RUNTIME COMPONENT daemon)
install(TARGETS ulf-convert RUNTIME COMPONENT convert)
install(FILES ${package_dir}/ulf.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME ulf COMPONENT daemon)
install(FILES ${PROJECT_SOURCE_DIR}/config/server.textproto ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT daemon)

# Manual pages, made from --help where help2man is installed.
find_program(HELP2MAN help2man)
if(NOT HELP2MAN)
  message(STATUS "no help2man: programs are installed without manual pages")
else()
  set(pages)
  foreach(program ulfd ulf ulf-convert)
    set(page ${PROJECT_BINARY_DIR}/man/${program}.1)
    add_custom_command(OUTPUT ${page}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man
      COMMAND ${HELP2MAN} --no-info --no-discard-stderr --output=${page}
        $<TARGET_FILE:${program}>
      DEPENDS ${program} VERBATIM)
    list(APPEND pages ${page})
  endforeach()
  add_custom_target(man ALL DEPENDS ${pages})
  install(FILES ${PROJECT_BINARY_DIR}/man/ulfd.1 ${PROJECT_BINARY_DIR}/man/ulf.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT daemon)
  install(FILES ${PROJECT_BINARY_DIR}/man/ulf-convert.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT convert)
endif()

# For plug-ins (engine/layers/plugin.h) and for clients (protos).
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/ulfd)
install(FILES ${PROJECT_BINARY_DIR}/proto/ulf.pb.h ${PROJECT_BINARY_DIR}/proto/embedding.pb.h
  DESTINATION ${headers}/proto COMPONENT dev)
foreach(folder base engine/tensor engine/kernels engine/weights engine/embedding engine/layers)
  file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  install(FILES ${found} DESTINATION ${headers}/${folder} COMPONENT dev)
endforeach()
install(TARGETS ulfd_client ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/clients/cpp/ulfd_client.h DESTINATION ${headers} COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/proto/predict.pb.h DESTINATION ${headers}/proto COMPONENT dev)
# In a folder ulfd, which is what Python's packages of them are called: one called proto is proto-plus.
file(GLOB protos CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/proto/*.proto)
foreach(proto ${protos})
  get_filename_component(name ${proto} NAME)
  file(READ ${proto} text)
  # No list: semicolons stay.
  string(REPLACE "import \"proto/" "import \"ulfd/" text "${text}")
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/protos/ulfd/${name} CONTENT "${text}")
  install(FILES ${PROJECT_BINARY_DIR}/protos/ulfd/${name}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/ulfd/protos/ulfd COMPONENT dev)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${proto})
endforeach()
include(CMakePackageConfigHelpers)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulfd)
configure_package_config_file(${package_dir}/ulfdConfig.cmake.in ${PROJECT_BINARY_DIR}/ulfdConfig.cmake
  INSTALL_DESTINATION ${cmake_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
# Another version is another ABI: the daemon refuses its plug-ins.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ulfdConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulfdConfig.cmake ${PROJECT_BINARY_DIR}/ulfdConfigVersion.cmake
  DESTINATION ${cmake_dir} COMPONENT dev)

# What only a package brings: the service.
install(FILES ${package_dir}/ulfd.service DESTINATION /lib/systemd/system COMPONENT daemon EXCLUDE_FROM_ALL)
install(FILES ${package_dir}/server.textproto DESTINATION /etc/ulfd COMPONENT daemon EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
# Some destinations are absolute.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME ulfd)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "the ulfd developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "ranking server for ULF models")
set(CPACK_COMPONENTS_ALL daemon convert dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME ulfd)
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS "adduser, init-system-helpers, ca-certificates")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
  "${package_dir}/conffiles;${package_dir}/postinst;${package_dir}/prerm;${package_dir}/postrm")
set(CPACK_DEBIAN_CONVERT_PACKAGE_NAME ulfd-convert)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME ulfd-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libabsl-dev, libgrpc++-dev, libprotobuf-dev, libssl-dev")
include(CPack)
