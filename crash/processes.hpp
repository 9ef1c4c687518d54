// Jobs in processes of their own: what they try may end one, and each core has one.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace everleaf::crash {

struct Ended {
  std::string answer;        // what the job returned
  std::string printed;       // its standard output
  std::string died;          // how the process ended, if not by an answer
  bool out_of_time = false;  // it took more than processor_seconds, or hung
  double processor_s = 0;    // that it took
};

struct Jobs {
  std::size_t count = 0;
  unsigned at_once = 1;
  // More of them end a process, and so do very many more seconds on the clock, since one that hangs
  // may take no processor time; 0: any number.
  double processor_seconds = 0;
  std::function<std::string(std::size_t)> run;  // in its process
  std::function<bool(std::size_t, const Ended&)>
      ended;  // here; false: end all that run, begin none
};

// Begins them in their order; none after an interrupt, which those that run are told of: what they
// still answer is theirs to say. Standard error of the jobs goes where that of this process goes.
void in_processes(const Jobs& jobs);

}  // namespace everleaf::crash
