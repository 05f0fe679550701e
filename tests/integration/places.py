# SPDX-License-Identifier: Apache-2.0
"""Build products at places that do for any test. A clone may lie where LD_PRELOAD cannot name its files (it splits at blanks
and colons) or where other users may not enter; copies in a temporary directory have neither trouble."""

import atexit
import os
import pathlib
import shutil
import tempfile


def copy(source, directory, name=None):
    """A copy that any user may read and run; its path. Programs that have an earlier copy loaded keep it."""
    path = pathlib.Path(directory) / (name or pathlib.Path(source).name)
    beside = path.with_name(f"{path.name}.new")
    shutil.copyfile(source, beside)
    beside.chmod(0o755)
    beside.replace(path)
    return path


def publish(*sources):
    """Copies in a directory that anybody may enter and that lasts as long as this process; the first one's path."""
    directory = tempfile.mkdtemp(prefix="alq-p-", dir="/tmp")
    atexit.register(shutil.rmtree, directory, True)
    os.chmod(directory, 0o755)
    return [copy(source, directory) for source in sources][0]
