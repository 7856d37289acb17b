#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The files of `cmake --install` serve another program, by find_package and by pkg-config.
source "${0%/*}/kit.sh"
: "${RP_BUILD_DIR:?the build to install}"

cmake --install "$RP_BUILD_DIR" --prefix "$scratch/usr" >install.log || fail "$(cat install.log)"
libdir=$(dirname "$(find usr -name libringpack.so)")
[ "$(usr/bin/ringpack --version)" = "$("$ringpack" --version)" ] || fail "the installed program"

for file in bash-completion/completions/ringpack zsh/site-functions/_ringpack \
    fish/vendor_completions.d/ringpack.fish; do
    [ -s "usr/share/$file" ] || fail "share/$file is not installed"
done

mkdir user
cat >user/main.c <<'C'
#include <ringpack/batch.h>
#include <ringpack/client.h>
#include <ringpack/error.h>
#include <stdio.h>

int main(void)
{
    struct rp_geometry geometry;
    (void)geometry;
    (void)rp_client_next;
    puts(rp_strerror(-RP_E_GONE));
    return 0;
}
C
cat >user/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(ringpack 0.2 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE ringpack::ringpack)
CMAKE
cmake -S user -B by-cmake -G Ninja -DCMAKE_PREFIX_PATH="$scratch/usr" >log 2>&1 || fail "$(cat log)"
cmake --build by-cmake >log 2>&1 || fail "find_package: $(cat log)"
[ "$(by-cmake/user)" = "the other side is gone" ] || fail "by find_package: $(by-cmake/user)"

flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs ringpack)
# shellcheck disable=SC2086 # flags are words
cc -std=c11 -pedantic -Wall -Wextra -Werror user/main.c $flags -o by-pkg-config ||
    fail "pkg-config: $flags"
[ "$(LD_LIBRARY_PATH=$libdir ./by-pkg-config)" = "the other side is gone" ] || fail "by pkg-config"

# The library is only the trainer's side, and exports only the declarations of the headers.
needed=$(readelf -d "$libdir/libringpack.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | xargs)
case $needed in
*uring* | *jemalloc* | *yaml* | *jansson*) fail "the library needs $needed" ;;
esac
exported=$(nm -D --defined-only --with-symbol-versions "$libdir/libringpack.so" |
    awk '$2 != "A" {print $3}')
for symbol in $exported; do
    case $symbol in
    *@@RINGPACK_*) ;;
    *) fail "$symbol is exported without a version" ;;
    esac
    grep -qw "${symbol%%@*}" -r usr/include/ringpack || fail "$symbol is exported but not declared"
done
declared=$(grep -oh 'RP_API[^;(]*(' -r usr/include/ringpack |
    grep -o 'rp_[a-z_0-9]*($' | tr -d '(' | sort)
[ "$(printf '%s\n' "$exported" | sed 's/@.*//' | sort)" = "$declared" ] ||
    fail "declared, and not all exported: $declared"
soname=$(readelf -d "$libdir/libringpack.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$soname" = libringpack.so.0.2 ] && [ -e "$libdir/$soname" ] || fail "SONAME: $soname"
echo "installed and used: needs $needed"
