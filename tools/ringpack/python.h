/* SPDX-License-Identifier: Apache-2.0 */
/* python.h — how a Python process is started by a command that runs in a directory which somebody
 * else may have filled: no module is imported from there, and no program is run from there. Python
 * before 3.11 has no -P, and puts the current directory before all others for -c and -m; so modules
 * are run by RP_PYTHON_RUN, with PYTHONSAFEPATH=1 and a PYTHONPATH of rp_python_places. */
#ifndef RP_TOOLS_PYTHON_H
#define RP_TOOLS_PYTHON_H

#include <stdbool.h>

/** The program of `python -c` that runs a module as `-m` would. */
#define RP_PYTHON_RUN(module)                                                                      \
    "import sys\n"                                                                                 \
    "sys.path[:] = [place for place in sys.path if place]\n"                                       \
    "import runpy\n"                                                                               \
    "runpy.run_module('" module "', run_name='__main__', alter_sys=True)\n"

/** A list of directories, as PATH and PYTHONPATH are, without the current one (also written as an
 * empty name); and, unless `below`, without directories below it. The caller frees it; NULL: no
 * memory. */
char *rp_python_places(const char *list, bool below);
/** The path of a program: a name without a slash is looked for in PATH, but not in or below the
 * current directory. NULL: it is not there. The caller frees it. */
char *rp_python_find(const char *name);
/** The path of a script of this installation. In a build a link to it is next to the program; in a
 * wheel the program is in ringpack/bin of the package, and the script at its place in ringpack. It
 * is looked for nowhere else, because anyone who may write there could replace it. NULL: let Python
 * find it as a module of the installed package. The caller frees it. */
char *rp_python_script(const char *link, const char *place_in_package);
/** Set PYTHONPATH and PYTHONSAFEPATH of this process for the Python that it starts. */
void rp_python_keep_imports_away(void);

#endif
