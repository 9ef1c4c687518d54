// Subcommands that are programs of their own, with dependencies of their own.
#pragma once

namespace everleaf::cli {

// Becomes `program`: beside this one, where an installation may put it, in `folder` of a build
// tree, or on the path. Returns only if that fails, with the exit code; `hint` tells how to get it.
int hand_over(const char* program, const char* folder, const char* hint, char** arguments);

}  // namespace everleaf::cli
