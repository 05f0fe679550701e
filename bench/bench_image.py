#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The size of the container image, unpacked on a file system of 4 KiB blocks."""

import json
import os
import pathlib
import sys

REPO = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ALIQUOT_BUILD", REPO / "build"))
sys.path.insert(0, str(REPO / "tools/image"))
import make  # noqa: E402
from root import assemble  # noqa: E402

if __name__ == "__main__":
    mib = round(make.unpacked_bytes(assemble(BUILD)[0]) / (1 << 20), 1)
    json.dump([{"name": "image.unpacked_mib", "unit": "MiB", "value_min": mib, "value_median": mib, "reference": None, "ratio": None}],
              sys.stdout)
