"""python_program.py FOLDER PROGRAM: the folder's Python modules as one file that can be run."""

import sys
import zipapp

zipapp.create_archive(sys.argv[1], sys.argv[2], interpreter="/usr/bin/env python3",
                      filter=lambda path: "__pycache__" not in path.parts)
