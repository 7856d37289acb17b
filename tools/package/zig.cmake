# SPDX-License-Identifier: Apache-2.0
# CMake's toolchain for what goes into a wheel: RP_DEPS is the folder that tools/package/deps made.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RP_DEPS)
set(CMAKE_SYSTEM_NAME Linux)
get_filename_component(CMAKE_SYSTEM_PROCESSOR ${RP_DEPS} NAME)
set(CMAKE_C_COMPILER ${RP_DEPS}/bin/cc)
set(CMAKE_AR ${RP_DEPS}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${RP_DEPS}/bin/ranlib CACHE FILEPATH "")
set(CMAKE_FIND_ROOT_PATH ${RP_DEPS})
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pie -s -Wl,-z,relro,-z,now")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s -Wl,-z,relro,-z,now")
