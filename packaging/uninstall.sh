#!/bin/sh
# Removes the files of an unpacked tarball: `sudo ./uninstall.sh [PREFIX]`. The list `files` is
# written by `cargo xtask package`. Configuration files stay.
set -e
prefix=${1:-/usr/local}
here=$(dirname "$0")
while read -r file; do
    rm -f "$prefix/$file"
done < "$here/files"
echo "removed from $prefix; /etc/mqnet stays"
