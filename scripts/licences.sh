#!/usr/bin/env bash
# Usage: licences.sh TARGET
# Licences of a binary: ours, and those of the crates that are compiled in, in Debian's format.
set -euo pipefail
cd "$(dirname "$0")/.."
# Those of the package tapline-full, which has all that others have.
features=$(make --no-print-directory --silent features)
cat <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Tapline

Files: *
Copyright: The Tapline developers
License: MIT or Apache-2.0
 On Debian the Apache License is in /usr/share/common-licenses/Apache-2.0.
 .
TEXT
sed 's/^$/./; s/^/ /' LICENSE-MIT
printf '\nComment: Crates that are compiled into tapline-full, which has those of the other programs, by name, version and licence:\n'
# Of the platform alone: others are in the lock file and in no binary.
cargo metadata --format-version 1 --locked --features "$features" --filter-platform "$1" |
    python3 -c '
import json, os, sys
packages = [p for p in json.load(sys.stdin)["packages"] if p["source"]]
for p in sorted(packages, key=lambda p: (p["name"], p["version"])):
    print(" %s %s: %s" % (p["name"], p["version"], p["license"] or "see its repository"))
# Libraries of C that a crate has within, whose licences ask for their text.
for name, place in [("rdkafka-sys", "librdkafka/LICENSE")]:
    for p in packages:
        if p["name"] == name:
            print(" .\n %s has within:" % name)
            with open(os.path.join(os.path.dirname(p["manifest_path"]), place)) as text:
                for line in text:
                    print(" " + (line.rstrip() or "."))'
