# SPDX-License-Identifier: Apache-2.0
# Make a file a part of the program: cmake -DSOURCE=page.html -DNAME=symbol -DHEADER=page.h
# -DTARGET=page.c -P embed.cmake
file(READ ${SOURCE} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(..)" "0x\\1," array "${hex}")
string(REGEX REPLACE "((0x..,){20})" "\\1\n" array "${array}")
file(WRITE ${TARGET} "#include \"${HEADER}\"\n\nconst unsigned char ${NAME}[] = {\n${array}};\n"
  "const size_t ${NAME}_bytes = ${bytes};\n")
