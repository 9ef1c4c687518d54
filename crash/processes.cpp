#include "processes.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
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

using Clock = std::chrono::steady_clock;

constexpr char kAnswerFollows = '\0';  // nothing that is printed has it
constexpr int kPollMs = 200;
constexpr int kBroken = 3;  // exit status

// Of a machine so busy that a process gets this part of one processor.
constexpr double kLeastShare = 1.0 / 20;
constexpr double kLeastWall = 60;  // seconds

struct Child {
  pid_t pid = -1;
  int out = -1;
  std::size_t job = 0;
  std::string text;
  Clock::time_point begun = Clock::now();
  bool hangs = false;
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
  return {pid, ends[0], job, {}, Clock::now(), false};
}

// True: the child has ended.
bool listen(Child& child) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(child.out, buffer.data(), buffer.size());
  if (n > 0) child.text.append(buffer.data(), static_cast<std::size_t>(n));
  return n == 0 || (n < 0 && errno != EINTR);
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

Ended finish(const Child& child) {
  ::close(child.out);
  int status = 0;
  rusage used{};
  ::wait4(child.pid, &status, 0, &used);
  const std::size_t at = child.text.find(kAnswerFollows);
  Ended ended;
  ended.printed = child.text.substr(0, at);
  ended.processor_s = seconds(used.ru_utime) + seconds(used.ru_stime);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && at != std::string::npos) {
    ended.answer = child.text.substr(at + 1);
  } else if (WIFSIGNALED(status)) {
    ended.out_of_time = WTERMSIG(status) == SIGXCPU || child.hangs;
    ended.died = child.hangs
                     ? "the process hung"
                     : std::string("the process was ended by ") + ::strsignal(WTERMSIG(status));
  } else {
    ended.died = "the process ended with status " + std::to_string(WEXITSTATUS(status));
  }
  return ended;
}

void end_hanging(std::vector<Child>& children, double processor_seconds) {
  const std::chrono::duration<double> most(kLeastWall + processor_seconds / kLeastShare);
  for (Child& child : children) {
    if (child.hangs || Clock::now() - child.begun < most) continue;
    child.hangs = true;
    ::kill(child.pid, SIGKILL);
  }
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
    if (jobs.processor_seconds > 0) end_hanging(children, jobs.processor_seconds);
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
