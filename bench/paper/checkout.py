"""Which commit a source tree is at."""

import subprocess


def commit(sources):
    """With -dirty behind it where more than pages of docs/ was changed; "" where git knows none."""
    def git(*arguments):
        done = subprocess.run(["git", "-C", sources, *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        known = git("describe", "--always", "--abbrev=10", "--exclude=*")
        return known + ("-dirty" if known and git("status", "--porcelain", "--", ".", ":!docs") else "")
    except OSError:  # no git
        return ""
