#include "processes.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interrupt.hpp"

namespace everleaf::crash {
namespace {

constexpr char kAnswerFollows = '\0';  // nothing that is printed has it
constexpr int kPollMs = 200;
constexpr int kBroken = 3;  // exit status

struct Child {
  pid_t pid = -1;
  int out = -1;
  std::size_t job = 0;
  std::string text;
};

// The signal ends the process.
void limit_processor_time(double seconds) {
  const auto whole = static_cast<rlim_t>(seconds) + 1;
  const rlimit limit{whole, whole + 5};
  ::setrlimit(RLIMIT_CPU, &limit);
}

[[noreturn]] void work(const Jobs& jobs, std::size_t job, int out) {
  if (::dup2(out, STDOUT_FILENO) < 0) ::_exit(kBroken);
  ::close(out);
  // The parent hands an interrupt on, and waits for what was done.
  std::signal(SIGINT, SIG_IGN);
  remember(SIGTERM, false);
  if (jobs.processor_seconds > 0) limit_processor_time(jobs.processor_seconds);
  const std::string answer = jobs.run(job);
  std::fputc(kAnswerFollows, stdout);
  std::fwrite(answer.data(), 1, answer.size(), stdout);
  ::_exit(std::fflush(stdout) == 0 ? 0 : kBroken);
}

Child begin(const Jobs& jobs, std::size_t job) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  std::fflush(stdout);  // or the child would print it again
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("no process");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // one that hangs must not outlive this process
    ::close(ends[0]);
    work(jobs, job, ends[1]);
  }
  ::close(ends[1]);
  return {pid, ends[0], job, {}};
}

// True: the child has ended.
bool listen(Child& child) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(child.out, buffer.data(), buffer.size());
  if (n > 0) child.text.append(buffer.data(), static_cast<std::size_t>(n));
  return n == 0 || (n < 0 && errno != EINTR);
}

Ended finish(const Child& child) {
  ::close(child.out);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  const std::size_t at = child.text.find(kAnswerFollows);
  Ended ended;
  ended.printed = child.text.substr(0, at);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && at != std::string::npos) {
    ended.answer = child.text.substr(at + 1);
  } else if (WIFSIGNALED(status)) {
    ended.out_of_time = WTERMSIG(status) == SIGXCPU;
    ended.died = std::string("the process was ended by ") + ::strsignal(WTERMSIG(status));
  } else {
    ended.died = "the process ended with status " + std::to_string(WEXITSTATUS(status));
  }
  return ended;
}

void end_all(std::vector<Child>& children) {
  for (const Child& child : children) {
    ::kill(child.pid, SIGKILL);
    (void)finish(child);
  }
  children.clear();
}

}  // namespace

void in_processes(const Jobs& jobs) {
  std::vector<Child> children;
  std::size_t next = 0;
  bool told = false;
  while (next < jobs.count || !children.empty()) {
    if (interrupted()) {
      next = jobs.count;
      if (!std::exchange(told, true)) {
        for (const Child& child : children) ::kill(child.pid, SIGTERM);
      }
    }
    if (next < jobs.count && children.size() < jobs.at_once) {
      children.push_back(begin(jobs, next++));
      continue;
    }
    std::vector<pollfd> waiting;
    for (const Child& child : children) waiting.push_back({child.out, POLLIN, 0});
    // Not for ever: an interrupt may come just before.
    if (::poll(waiting.data(), waiting.size(), kPollMs) <= 0) continue;
    for (std::size_t i = waiting.size(); i-- != 0;) {
      if (waiting[i].revents == 0 || !listen(children[i])) continue;
      const std::size_t job = children[i].job;
      const Ended ended = finish(children[i]);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      if (jobs.ended(job, ended)) continue;
      end_all(children);
      return;
    }
  }
}

}  // namespace everleaf::crash
